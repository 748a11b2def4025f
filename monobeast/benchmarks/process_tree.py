"""A process and its descendants, and their total memory, on Linux."""

from collections import defaultdict
from pathlib import Path

_PROC = Path("/proc")  # tests build another


def find(root: int) -> list[int]:
    """Ids of a process and its living descendants; only its own without /proc."""
    children = defaultdict(list)
    for path in _PROC.glob("[0-9]*/stat"):
        try:
            # The name in brackets may hold anything.
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):  # it ended meanwhile
            continue
        children[parent].append(int(path.parent.name))
    tree = [root]
    for pid in tree:  # grows meanwhile
        tree += children[pid]
    return tree


def measure_memory(root: int) -> int | None:
    """Bytes used by the tree of `root` (PSS: memory shared by n processes counts 1/n in each); None if unknown.

    A process that ends meanwhile or belongs to another user is left out.
    """
    sizes = [size for pid in find(root) if (size := _read_pss(pid)) is not None]
    return sum(sizes) if sizes else None


def _read_pss(pid: int) -> int | None:
    try:
        lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), None)
