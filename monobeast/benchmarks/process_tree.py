"""A process and all that it started, and the memory that they take together, as Linux tells it."""

from collections import defaultdict
from pathlib import Path

_PROC = Path("/proc")  # tests build another


def find(root: int) -> list[int]:
    """Numbers of a process and of its living descendants; of itself alone where there is no /proc."""
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
    """Bytes that the tree of `root` takes (PSS: what n processes share counts 1/n in each); None where unknown.

    A process that ends meanwhile, or is another user's, is left out.
    """
    sizes = [size for pid in find(root) if (size := _read_pss(pid)) is not None]
    return sum(sizes) if sizes else None


def _read_pss(pid: int) -> int | None:
    try:
        lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), None)
