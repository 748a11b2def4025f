"""What goes into a checkpoint comes out as it went in, by a file that opens without running code."""

import io
from collections import deque

import numpy as np
import pytest
import torch

from monobeast import plain_values


def through_a_file(value):
    file = io.BytesIO()
    torch.save(plain_values.pack(value), file)
    file.seek(0)
    return plain_values.unpack(torch.load(file, weights_only=True))


@pytest.mark.parametrize(
    "value",
    [None, True, 3, 2**127 - 1, -0.0, float("inf"), "text", [1, (2, [])], {"a": {1: (None,)}}],
    ids=str,
)
def test_plain_values_come_back_with_their_types(value):
    assert repr(through_a_file(value)) == repr(value)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "uint32", "uint64", "int64", "float16", "float32", "float64"])
def test_arrays_and_scalars_come_back_as_such(dtype):
    array, scalar = through_a_file((np.arange(6).reshape(2, 3)[:, ::-1].astype(dtype), np.dtype(dtype).type(1)))

    assert type(array) is np.ndarray and array.dtype == dtype
    assert (array == np.array([[2, 1, 0], [5, 4, 3]]).astype(dtype)).all()
    assert type(scalar) is np.dtype(dtype).type and scalar == 1


def test_tensors_come_back_as_such_and_without_the_rest_of_their_memory():
    large = torch.arange(1000.0)

    packed = plain_values.pack(large[10:12])

    assert packed.untyped_storage().nbytes() == 8
    assert torch.equal(through_a_file(large[10:12]), torch.tensor([10.0, 11.0]))


@pytest.mark.parametrize("function", [plain_values.pack, lambda value: plain_values.unpack(plain_values.pack(value))])
def test_a_copy_shares_no_memory(function):
    value = {"array": np.zeros(2), "tensor": torch.zeros(2), "list": [0]}

    copied = function(value)
    before = repr(copied)
    value["array"] += 1
    value["tensor"] += 1
    value["list"][0] += 1

    assert repr(copied) == before


def test_what_is_unpacked_shares_no_memory_with_what_was_packed():
    packed = plain_values.pack({"array": np.zeros(2), "tensor": torch.zeros(2)})
    before = repr(packed)

    unpacked = plain_values.unpack(packed)
    unpacked["array"] += 1
    unpacked["tensor"] += 1

    assert repr(packed) == before


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [0, deque()]}, r"state\['a'\]\[1\] is of type deque: must be None, bool, int"),
        ({(1, 2): 3}, r"state is of type dict"),
        ({"a": np.array(["text"])}, r"state\['a'\] is an array of <U4: torch has no such type"),
        (np.array([None]), "state is an array of object"),
        (io, "state is of type module"),
    ],
    ids=["deque", "keys", "texts", "objects", "module"],
)
def test_what_is_not_plain_is_refused_with_its_place(value, message):
    with pytest.raises(ValueError, match=message):
        plain_values.pack(value)
