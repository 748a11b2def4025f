"""What the C library does with memory that torch frees on the CPU."""

import ctypes
import platform

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of glibc's malloc.h
_NEVER = 2**31 - 1


def keep_freed_memory() -> None:
    """Lets this process keep what it frees for its next allocation, for good; with glibc alone.

    Every update allocates and frees tensors of the same sizes. glibc would map those above 32 MiB anew each time, and
    the kernel would clear every page of them: on Pong a quarter of an update of 640 steps (docs/performance.md).
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, _NEVER)
