"""Freed memory is kept: counted in page faults, in a process of its own, since it cannot be taken back."""

import platform
import subprocess
import sys

import pytest

COUNT_FAULTS = """
import resource
import torch
from monobeast import allocator
if {keeps}:
    allocator.keep_freed_memory()
def count_faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(12_000_000)  # 48 MB, freed at once
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(min([count_faults() for _ in range(40)][20:]))  # the first find no hole between smaller ones that is large enough
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="nothing changes with another C library")
def test_a_tensor_of_a_size_that_was_freed_before_needs_no_new_pages():
    def count(keeps):
        script = COUNT_FAULTS.format(keeps=keeps)
        return int(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)

    # Without the call the kernel maps each anew, be it in huge pages of 2 MiB.
    assert count(keeps=True) == 0 < 20 <= count(keeps=False)
