"""Settings of the C library's memory allocator."""

import ctypes
import platform

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of glibc's malloc.h
_NEVER = 2**31 - 1


def keep_freed_memory() -> None:
    """Makes this process keep freed memory for later allocations, permanently; only with glibc.

    Every update allocates and frees tensors of the same sizes. By default glibc maps those above 32 MiB anew each time,
    and the kernel clears every page: on Pong that takes a quarter of an update of 640 steps (docs/performance.md).
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, _NEVER)
