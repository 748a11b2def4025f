"""The machine's resources: memory, open files, processes, cores; None if unknown, as on macOS."""

import math
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

try:
    import resource
except ImportError:  # Windows
    resource = None

_ROOT = Path("/")  # tests build another


class OpenFiles(NamedTuple):
    """Descriptors of this process; its children inherit both limits."""

    used: int
    soft: float  # what the kernel enforces
    hard: float  # to which anybody may raise it


class Machine(NamedTuple):
    """Available resources at one moment; None: unknown."""

    shared_memory: int | None  # bytes
    memory: int | None  # bytes
    open_files: OpenFiles | None
    processes: int | None  # the limit; a thread counts as one
    cores: int


def read() -> Machine:
    """Reads this machine's current resources."""
    return Machine(free_shared_memory(), available_memory(), open_files(), limit_of_processes(), count_cores())


def free_shared_memory() -> int | None:
    """Free bytes where torch puts shared tensors.

    Both of torch's sharing strategies call shm_open, which on Linux creates a file in /dev/shm.
    """
    try:
        status = os.statvfs(_ROOT / "dev/shm")
    except (AttributeError, OSError):
        return None
    return status.f_bavail * status.f_frsize if status.f_blocks else None  # a tmpfs without a limit says 0 blocks


def available_memory() -> int | None:
    """Bytes that processes can use without swapping, within the container's limits; on macOS the total memory."""
    kilobytes = _read_fields(_ROOT / "proc/meminfo").get("MemAvailable")
    by_kernel = _whole_memory() if kilobytes is None else 1024 * kilobytes
    limits = [by_kernel, *_memory_left_in_cgroups()]
    return min((limit for limit in limits if limit is not None), default=None)


def open_files() -> OpenFiles | None:
    """How many descriptors this process has and may have."""
    if resource is None:
        return None
    try:
        used = len(os.listdir(_ROOT / "dev/fd")) - 1  # one is of this look itself
    except OSError:
        used = 0
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    return OpenFiles(used, *(math.inf if limit == resource.RLIM_INFINITY else limit for limit in limits))


def allow_open_files(number: int) -> None:
    """Raises the soft limit to `number` if it is lower. Children that start later inherit it.

    It is not raised to the hard limit, which may be a billion: old programs started by an environment close every
    descriptor below the limit, one by one.

    Raises:
        ValueError, OSError: the kernel does not allow it.
    """
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < number:
        resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))


def limit_of_processes() -> int | None:
    """Processes and threads that a run may have: what its control group has left, and the limits of user and kernel.

    From the latter two, what other programs use is not subtracted.
    """
    limits = list(_processes_left_in_cgroups())
    if resource is not None and hasattr(os, "geteuid") and os.geteuid() != 0:  # root is not bound by it
        limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
        limits += [] if limit == resource.RLIM_INFINITY else [limit]
    numbers = _read_number(_ROOT / "proc/sys/kernel/pid_max")
    limits += [] if numbers is None else [numbers]
    return min(limits, default=None)


def count_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def name_cpu() -> str:
    """The processor's name, if known."""
    models = [line for line in _read_text(_ROOT / "proc/cpuinfo").splitlines() if line.startswith("model name")]
    return models[0].split(":")[1].strip() if models else platform.processor()


def is_container() -> bool:
    """Whether this looks like Docker, Podman or Kubernetes."""
    marks = (_ROOT / ".dockerenv", _ROOT / "run/.containerenv")
    return any(mark.exists() for mark in marks) or "KUBERNETES_SERVICE_HOST" in os.environ


def _whole_memory() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _memory_left_in_cgroups() -> Iterator[int]:
    """For each limit on this process: unused bytes plus cached files that the kernel can drop."""
    names = [
        ("memory.max", "memory.current", "inactive_file"),  # version 2
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),  # version 1
    ]
    for folder in _cgroup_folders("memory"):
        for limit_name, usage_name, droppable_name in names:
            limit, usage = _read_number(folder / limit_name), _read_number(folder / usage_name)
            if limit is not None and usage is not None:
                droppable = _read_fields(folder / "memory.stat").get(droppable_name, 0)
                yield max(0, limit - usage + droppable)


def _processes_left_in_cgroups() -> Iterator[int]:
    for folder in _cgroup_folders("pids"):
        limit, usage = _read_number(folder / "pids.max"), _read_number(folder / "pids.current")
        if limit is not None and usage is not None:
            yield max(0, limit - usage)


def _cgroup_folders(controller: str) -> Iterator[Path]:
    """Folders of this process's control group and its ancestors, in versions 1 and 2.

    In a container the group's path may be the host's and not exist; the top folder then is the container's own.
    """
    top = _ROOT / "sys/fs/cgroup"
    for line in _read_text(_ROOT / "proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        for mount in [top / controller] if controllers else [top, top / "unified"]:
            own = Path(group.lstrip("/"))
            yield from (mount / folder for folder in (own, *own.parents))


def _read_text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def _read_number(path: Path) -> int | None:
    text = _read_text(path).strip()
    return int(text) if text.isdigit() else None  # "max": no limit


def _read_fields(path: Path) -> dict[str, int]:
    """Reads lines such as "MemAvailable:   21866680 kB" or "inactive_file 1048576"."""
    rows = [line.replace(":", " ").split() for line in _read_text(path).splitlines()]
    return {row[0]: int(row[1]) for row in rows if len(row) >= 2 and row[1].isdigit()}
