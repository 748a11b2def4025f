"""What an error says is one line; running out of memory is told apart from other failures."""

import pytest
import torch

from monobeast.errors import describe, is_out_of_memory


@pytest.mark.parametrize(
    ("message", "whole", "short"),
    [
        ("no", "ValueError: no", "ValueError: no"),
        ("", "ValueError", "ValueError"),
        (" \n", "ValueError", "ValueError"),
        ("two\n\tlines", "ValueError: two lines", "ValueError: two ..."),
        ("\x1b[31mred π", r"ValueError: \x1b[31mred π", r"ValueError: \x1b[31mred π"),
    ],
)
def test_an_error_is_described_in_a_line_that_moves_and_colors_nothing(message, whole, short):
    assert describe(ValueError(message)) == whole
    assert describe(ValueError(message), is_short=True) == short


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: 9 bytes"), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
    ],
)
def test_memory_that_ran_out_is_told_by_whatever_words(error, expected):
    assert is_out_of_memory(error) == expected


def test_the_cpu_says_so_as_expected():
    with pytest.raises(RuntimeError) as found:
        torch.empty(2**60, dtype=torch.uint8)

    assert is_out_of_memory(found.value)
