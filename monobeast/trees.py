"""Trees: observations of several parts, nested in dicts and tuples like Gymnasium's Dict and Tuple spaces.

A leaf is an array, a tensor, or the space of one. An observation with a single part is itself a leaf.
"""

from collections.abc import Callable, Iterable
from typing import Any

from gymnasium import spaces

Tree = Any  # a leaf, or a dict or a tuple of trees


def of_space(space: spaces.Space) -> Tree:
    """The tree whose leaves are the spaces of the parts; for a single part, the space itself."""
    if isinstance(space, spaces.Dict):
        return {key: of_space(part) for key, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(of_space(part) for part in space)
    return space


def map_leaves(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """The tree of `function(leaf)`; with `others` of the same form, of `function(leaf, leaf of the next, ...)`.

    Raises:
        ValueError: tuples of different lengths.
        KeyError: a dict in another tree lacks a key.
    """
    if isinstance(tree, dict):
        return {key: map_leaves(function, part, *(other[key] for other in others)) for key, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(map_leaves(function, *parts) for parts in zip(tree, *others, strict=True))
    return function(tree, *others)


def leaves(tree: Tree) -> list[Any]:
    """All leaves, in the tree's order."""
    found: list[Any] = []
    map_leaves(found.append, tree)
    return found


def name_leaves(tree: Tree, name: str) -> dict[str, Any]:
    """All leaves by their Python expressions, such as `name['camera'][0]`; just `name` if the tree is a leaf."""
    if not isinstance(tree, (dict, tuple)):
        return {name: tree}
    parts = tree.items() if isinstance(tree, dict) else enumerate(tree)
    return {path: leaf for key, part in parts for path, leaf in name_leaves(part, f"{name}[{key!r}]").items()}


def name_fields(record: Any) -> dict[str, Any]:
    """All leaves of a named tuple of trees, by field name and path as in `name_leaves`."""
    return {path: leaf for name, tree in record._asdict().items() for path, leaf in name_leaves(tree, name).items()}


def with_leaves(tree: Tree, new_leaves: Iterable[Any]) -> Tree:
    """A tree of the same form with other leaves, given in the tree's order."""
    remaining = iter(new_leaves)
    return map_leaves(lambda _: next(remaining), tree)
