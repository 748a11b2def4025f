"""What is there: read from files as Linux writes them, and from the real thing where that can be made."""

import math
import os
import resource
import subprocess
import sys

import pytest

from monobeast.resources import machine

GB = 10**9


@pytest.fixture
def root(tmp_path, monkeypatch):
    """An empty root directory: a machine that tells nothing of itself."""
    monkeypatch.setattr(machine, "_ROOT", tmp_path)
    return tmp_path


@pytest.fixture
def limit_of_files():
    """Gives back the limit of open files that a test changes."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


MEMINFO = {"proc/meminfo": "MemTotal:       20000000 kB\nMemFree:         1000000 kB\nMemAvailable:   10000000 kB"}
VERSION_2 = {
    "proc/self/cgroup": "0::/user/run",
    "sys/fs/cgroup/user/run/memory.max": "max",
    "sys/fs/cgroup/user/run/memory.current": GB,
    "sys/fs/cgroup/user/memory.max": 8 * GB,
    "sys/fs/cgroup/user/memory.current": 6 * GB,
    "sys/fs/cgroup/user/memory.stat": f"anon 1\ninactive_file {GB}\nactive_file 5",
}
VERSION_1 = {
    "proc/self/cgroup": "9:name=systemd:/\n4:cpu,cpuacct:/other\n3:memory:/docker/abc\n0::/",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": 4 * GB,  # of the container, which has no folder docker/abc
    "sys/fs/cgroup/memory/memory.usage_in_bytes": 2 * GB,
    "sys/fs/cgroup/memory/memory.stat": f"inactive_file 7\ntotal_inactive_file {GB}",
    "sys/fs/cgroup/memory/other/memory.limit_in_bytes": 5,  # not ours: of another controller we are in a group "other"
    "sys/fs/cgroup/memory/other/memory.usage_in_bytes": 5,
}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (MEMINFO, 10_240_000_000),
        (MEMINFO | VERSION_2, 3 * GB),  # the group above has the limit; files in memory can be dropped
        (MEMINFO | VERSION_1, 3 * GB),
        (MEMINFO | VERSION_2 | {"sys/fs/cgroup/user/memory.max": "max"}, 10_240_000_000),
        (MEMINFO | VERSION_2 | {"sys/fs/cgroup/user/memory.max": 2 * GB}, 0),
        (MEMINFO | VERSION_1 | {"sys/fs/cgroup/memory/memory.limit_in_bytes": 2**63 - 4096}, 10_240_000_000),
        (VERSION_2, 3 * GB),
        (MEMINFO | {"proc/self/cgroup": "0::/"}, 10_240_000_000),
    ],
)
def test_memory_is_the_least_of_what_kernel_and_control_groups_leave(root, monkeypatch, files, expected):
    monkeypatch.setattr(machine, "_whole_memory", lambda: None)
    write(root, files)

    assert machine.available_memory() == expected


def test_a_machine_that_says_nothing_has_at_most_all_its_memory_and_the_rest_is_unknown(root, monkeypatch):
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}.__getitem__)
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    there = machine.read()

    assert (there.memory, there.shared_memory, there.processes) == (4_096_000, None, None)
    assert there.cores >= 1 and there.open_files.used == 0


def test_processes_are_what_the_control_group_and_the_user_may_add(root, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    limits = {resource.RLIMIT_NPROC: (500, 1000)}
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    write(root, {"proc/sys/kernel/pid_max": 32768, "proc/self/cgroup": "8:pids:/\n0::/"})

    assert machine.limit_of_processes() == 500
    write(root, {"sys/fs/cgroup/pids/pids.max": 100, "sys/fs/cgroup/pids/pids.current": 30})
    assert machine.limit_of_processes() == 70


def is_open(number):
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def test_open_files_are_counted():
    before = machine.open_files()
    assert before.used == sum(is_open(number) for number in range(10_000))
    reader, writer = os.pipe()
    after = machine.open_files()
    os.close(reader)
    os.close(writer)

    assert after.used - before.used == 2
    assert after.soft <= after.hard


def test_a_limit_of_files_that_is_none_is_infinite(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, resource.RLIM_INFINITY))

    assert machine.open_files()[1:] == (1024, math.inf)


def test_the_soft_limit_of_files_is_raised_as_far_as_needed_and_never_lowered(limit_of_files):
    hard = limit_of_files[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))

    machine.allow_open_files(400)
    machine.allow_open_files(350)

    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (400, hard)
    with pytest.raises(ValueError):
        machine.allow_open_files(hard + 1)


def test_a_container_is_known_by_its_marks(root, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert not machine.is_container()
    write(root, {".dockerenv": ""})
    assert machine.is_container()


def test_shared_memory_is_what_a_real_file_system_has_free(root):
    (root / "dev/shm").mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "monobeast-test", str(root / "dev/shm")]
    if sys.platform != "linux" or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a file system, as root has")
    try:
        before = machine.free_shared_memory()
        (root / "dev/shm/file").write_bytes(bytes(10_000))
        after = machine.free_shared_memory()
    finally:
        subprocess.run(["umount", str(root / "dev/shm")], check=True)

    assert (before, before - after) == (2**20, 3 * 4096)
