import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Tuple

from monobeast import trees

TREE = {"b": (1, {"a.c": 2}), "a": 3, "empty": (), 7: 4}


def test_a_space_of_parts_is_a_tree_and_every_other_space_a_leaf():
    box, number = Box(0, 1, (2,)), Discrete(3)

    assert trees.of_space(Tuple([Dict(a=box, b=Tuple([number])), Dict()])) == ({"a": box, "b": (number,)}, {})
    assert trees.of_space(box) is box


def test_leaves_have_the_names_that_lead_to_them():
    named = trees.name_leaves(TREE, "TREE")

    assert named == {"TREE['b'][0]": 1, "TREE['b'][1]['a.c']": 2, "TREE['a']": 3, "TREE[7]": 4}
    assert all(eval(name) == leaf for name, leaf in named.items())
    assert trees.name_leaves(5, "x") == {"x": 5}


def test_a_function_of_leaves_keeps_the_form():
    assert trees.map_leaves(lambda leaf: -leaf, TREE) == {"b": (-1, {"a.c": -2}), "a": -3, "empty": (), 7: -4}
    assert trees.map_leaves(str, 5) == "5"


def test_leaves_of_several_trees_meet_by_their_key_whatever_its_place():
    one, other = {"a": 1, "b": (2,)}, {"b": (20,), "a": 10}

    assert trees.map_leaves(lambda *leaves: leaves, one, other) == {"a": (1, 10), "b": ((2, 20),)}


@pytest.mark.parametrize(("other", "error"), [({"a": 1}, KeyError), ({"a": 1, "b": ()}, ValueError)])
def test_trees_of_another_form_are_refused(other, error):
    with pytest.raises(error):
        trees.map_leaves(lambda *leaves: leaves, {"a": 1, "b": (2,)}, other)


def test_leaves_can_be_taken_out_and_others_put_in():
    assert trees.leaves(TREE) == [1, 2, 3, 4]
    assert trees.with_leaves(TREE, "wxyz") == {"b": ("w", {"a.c": "x"}), "a": "y", "empty": (), 7: "z"}
    assert trees.with_leaves(np.zeros(2), [9]) == 9
