"""Records a run's files behind its figures in `results/NAME/`, small enough for the repository."""

import gzip
import json
import re
import shutil
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"
TEST_FILE = "test.txt"  # what `monobeast test` said
CHECKS_FILE = "checks.json"  # what the ladder measured, and its bounds
_KEPT = ("meta.json", "logs.csv", "episodes.csv", TEST_FILE, CHECKS_FILE)
_LARGEST = 1_000_000  # bytes; what is larger is compressed
_SAVEDIR = "~/logs/monobeast"  # in place of where the run was made


class TestScore(NamedTuple):
    """The result of `monobeast test`."""

    num_episodes: int
    mean: float
    deviation: float
    minimum: float
    maximum: float


def record(folder: Path, name: str | None = None) -> Path:
    """Copies a run's files to `results/NAME/`, replacing an older record; NAME defaults to the run's."""
    target = RESULTS / (name or folder.name)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    savedir = json.loads((folder / "meta.json").read_text())["config"]["savedir"]
    for file in _KEPT:
        if not (folder / file).exists():
            continue
        content = (folder / file).read_text()
        if file in ("meta.json", TEST_FILE):
            content = content.replace(str(folder.parent), _SAVEDIR).replace(savedir, _SAVEDIR)
            # Earlier parts of a resumed run may have lain elsewhere.
            content = re.sub(r'(?<="--savedir",)(\s+)"[^"]*"', rf'\1"{_SAVEDIR}"', content)
        if len(content) > _LARGEST:
            packed = gzip.compress(content.encode(), mtime=0)  # the same bytes from the same run
            (target / f"{file}.gz").write_bytes(packed)
        else:
            (target / file).write_text(content)
    return target


def read_test(folder: Path) -> TestScore:
    """The score in the last line of a run's `test.txt`."""
    text = (folder / TEST_FILE).read_text().splitlines()[-1]
    number = r"(-?[\d.]+)"
    names = ("mean", "standard deviation", "minimum", "maximum")
    found = re.search(rf"over {number} episodes: " + ", ".join(f"{name} {number}" for name in names), text)
    if found is None:
        raise ValueError(f"{folder / TEST_FILE}: no score in its last line")
    return TestScore(int(found[1]), *(float(found[i]) for i in range(2, 6)))
