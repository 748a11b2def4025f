"""How to call a function: which of its parameters gets which of a case's arguments."""

import inspect
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, NoReturn

from monobeast.vtrace_check.arguments import ARGUMENTS, NEEDED, find_argument

_WAYS_OUT = "Give it a default, name the arguments in their order (--order), or wrap the function (docs/vtrace.md)"


class Call(NamedTuple):
    """The arguments of a call, under our names."""

    positional: tuple[str, ...]
    named: dict[str, str]  # by the function's own names
    left: tuple[str, ...] = ()  # the function's optional parameters that are not given

    @property
    def taken(self) -> tuple[str, ...]:
        return (*self.positional, *self.named.values())


def read_order(order: str | Iterable[str]) -> Call:
    """A call by position, from names given one by one or in one text separated by commas or blanks.

    Raises:
        TypeError: these are not names.
        ValueError: there is no name, one is repeated or unknown, or one that V-trace needs is missing.
    """
    own = order.replace(",", " ").split() if isinstance(order, str) else read_names("order", order)
    if not own:
        raise ValueError("order: names no argument; must be like log_rhos,discounts,rewards,values,bootstrap_value")
    names = [find_argument(name) or _refuse(name) for name in own]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"order: {', '.join(twice)} named more than once")
    return _check(Call(tuple(names), {}))


def read_names(option: str, names: Any) -> list[str]:
    """The names in an option's value, such as a list.

    Raises:
        TypeError: these are not names.
    """
    found = [*names] if isinstance(names, Iterable) else [names]
    if not isinstance(names, Iterable) or not all(isinstance(name, str) for name in found):
        raise TypeError(f"{option}: expected names, found {names!r}")
    return found


def read_signature(function: Callable[..., Any]) -> Call:
    """A call by the names of the function's parameters, passed by position where possible.

    Functions such as those of `jax.vmap` treat arguments passed by name differently from those passed by position.

    Raises:
        ValueError: its parameters are unknown, or it needs one that no case has, or lacks one that V-trace needs.
    """
    try:
        told = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        told = []
    parameters = [one for one in told if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    if not parameters:
        raise ValueError("the function does not tell its arguments: name them in their order (--order)")
    call = _check(_assign(parameters, by_position=True))
    return call if _takes(function, call) else _assign(parameters, by_position=False)


def _assign(parameters: list[inspect.Parameter], by_position: bool) -> Call:
    positional: list[str] = []
    named: dict[str, str] = {}
    left: list[str] = []
    is_next = True  # the place after the last that was filled
    for parameter in parameters:
        name = find_argument(parameter.name)
        is_next = is_next and parameter.kind is not parameter.KEYWORD_ONLY
        has_name = parameter.kind is not parameter.POSITIONAL_ONLY
        if name is None or name in (*positional, *named.values()) or not (is_next or has_name):
            if parameter.default is parameter.empty:
                _refuse(parameter.name, name)
            left.append(parameter.name)
            is_next = False
        elif is_next and (by_position or not has_name):
            positional.append(name)
        else:
            named[parameter.name] = name
            is_next = False
    return Call(tuple(positional), named, tuple(left))


def _takes(function: Callable[..., Any], call: Call) -> bool:
    """Whether the function itself accepts this call; it may wrap the one whose signature it shows."""
    try:
        inspect.signature(function, follow_wrapped=False).bind(*call.positional, **call.named)
    except (TypeError, ValueError):
        return False
    return True


def _refuse(own: str, name: str | None = None) -> NoReturn:
    if name:
        raise ValueError(f"argument {own}: is another name of {name}, which the function takes as well. {_WAYS_OUT}")
    raise ValueError(f"argument {own}: no case has it; known are {', '.join(ARGUMENTS)}. {_WAYS_OUT}")


def _check(call: Call) -> Call:
    """Returns the call; raises ValueError unless it has what V-trace needs."""
    for alternatives in NEEDED:
        if not any(set(names) <= set(call.taken) for names in alternatives):
            lacking = ", or ".join(" with ".join(names) for names in alternatives)
            raise ValueError(f"the function takes none of {lacking}; it takes {', '.join(call.taken)}. {_WAYS_OUT}")
    return call
