"""Reads a run from its folder: `meta.json`, and `episodes.csv` and `logs.csv`, which may be gzip-compressed.

Imports no torch, so that it is fast and works on machines without it.
"""

import gzip
import json
import os
import zlib
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from monobeast.files import user_path

Columns = dict[str, np.ndarray]

_KINDS = {"step": int, "history": list, "state": str}  # of what readers of meta.json count on, where it is there


class Episodes(NamedTuple):
    """The finished episodes of a run, in the order in which they reached the learner."""

    steps: np.ndarray  # int64 [N], agent steps learned from when the episode's end was; never falls
    returns: np.ndarray  # float64 [N], of the game, unclipped
    lengths: np.ndarray  # int64 [N], agent steps


class RecordedRun:
    """One run. Reads `meta.json` at once, the other files on first access.

    A run in progress can be read, too: an incomplete last line is left out.
    """

    def __init__(self, folder: str | Path) -> None:
        """Reads `meta.json`.

        Raises:
            ValueError: it is missing, or not that of a run; the message names folder and fault, as for `episodes` and
                `logs`.
        """
        self.folder = Path(folder)
        self.name = self.folder.resolve().name  # of the run that `latest` links to
        self.meta = self._read_meta()
        self.config: dict[str, Any] = self.meta["config"]

    @property
    def starts(self) -> list[dict[str, Any]]:
        """The entries of `meta.json` for each start of the run, oldest first; several if it was resumed."""
        return [*self.meta.get("history", []), self.meta]

    @cached_property
    def episodes(self) -> Episodes:
        """All finished episodes, at least one."""
        columns = self._read_csv("episodes.csv", ("step", "episode_return", "episode_length"))
        if not len(columns["step"]):
            self._refuse("episodes.csv: no episode has finished yet")
        self._require_finite("episodes.csv", columns, ("step", "episode_return", "episode_length"))
        steps, lengths = (columns[name].astype(np.int64) for name in ("step", "episode_length"))
        return Episodes(steps, columns["episode_return"], lengths)

    @cached_property
    def logs(self) -> Columns:
        """The columns of `logs.csv` by name, float64 [rows], at least one row; NaN for an empty cell."""
        columns = self._read_csv("logs.csv", ("step", "seconds"))
        if not len(columns["step"]):
            self._refuse("logs.csv: no row has been written yet")
        self._require_finite("logs.csv", columns, ("step", "seconds"))
        return columns

    def _refuse(self, fault: str) -> NoReturn:
        raise ValueError(f"run {self.folder}: {fault}")

    def _read_meta(self) -> dict[str, Any]:
        try:
            meta = json.loads((self.folder / "meta.json").read_text(encoding="utf-8"))
        except OSError as error:
            self._refuse(f"meta.json cannot be read: {error.strerror}")
        except (ValueError, RecursionError) as error:  # neither JSON nor UTF-8
            self._refuse(f"meta.json is damaged: {error}")
        config = meta.get("config") if isinstance(meta, dict) else None
        if not isinstance(config, dict) or not isinstance(config.get("env"), str):
            self._refuse("meta.json is damaged: it holds no config with an env")
        for name, kinds in _KINDS.items():
            if not isinstance(meta.get(name, kinds()), kinds):
                self._refuse(f"meta.json is damaged: its {name} is {meta[name]!r:.40}")
        return meta

    def _read_csv(self, file_name: str, required: tuple[str, ...]) -> Columns:
        """The columns of a CSV file of numbers as float64 arrays."""
        # As `csv_file.split_rows`, not by `csv`: a stray quotation mark is a fault of its own line.
        header, *lines = self._read_text(file_name).splitlines() or [""]
        names = header.split(",")
        for name in required:
            if name not in names:
                self._refuse(f"{file_name} is damaged: its first line names no column {name}")
        numbered = [(number, line.split(",")) for number, line in enumerate(lines, 2) if line]
        rows = [self._read_row(f"{file_name}, line {number}", names, cells) for number, cells in numbered]
        table = np.array(rows, np.float64).reshape(len(rows), len(names))
        if (falls := np.flatnonzero(np.diff(table[:, names.index("step")]) < 0)).size:
            self._refuse(f"{file_name} is damaged: row {falls[0] + 2} is of an earlier step than the row before it")
        return dict(zip(names, table.T, strict=True))

    def _read_text(self, file_name: str) -> str:
        """A file's complete lines; those of `file_name`.gz if there is no `file_name`."""
        path = self.folder / file_name
        packed = path.with_name(f"{file_name}.gz")
        try:
            content = gzip.decompress(packed.read_bytes()) if not path.exists() else path.read_bytes()
            whole = content[: content.rfind(b"\n") + 1]
            return whole.decode("utf-8")
        except FileNotFoundError:
            self._refuse(f"no {file_name} nor {packed.name} in it")
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            self._refuse(f"{packed.name} is damaged: {error}")
        except UnicodeDecodeError as error:
            self._refuse(f"{file_name} is damaged: {error}")
        except OSError as error:
            self._refuse(f"{file_name} cannot be read: {error.strerror}")

    def _read_row(self, place: str, names: list[str], cells: list[str]) -> list[float]:
        if len(cells) != len(names):
            self._refuse(f"{place}: {len(cells)} cells, expected {len(names)}")
        try:
            return [float(cell or "nan") for cell in cells]
        except ValueError as error:
            self._refuse(f"{place}: {error}")

    def _require_finite(self, file_name: str, columns: Columns, names: tuple[str, ...]) -> None:
        for name in names:
            if (faults := np.flatnonzero(~np.isfinite(columns[name]))).size:
                self._refuse(f"{file_name} is damaged: {name} of row {faults[0] + 1} is empty or not finite")


def find_folder(run: str, savedir: str) -> Path:
    """The folder of `run`, which is either a path or the name of a run in `savedir`.

    Raises:
        ValueError: there is none; the message lists the places searched.
    """
    places = [user_path(run), user_path(savedir) / run]
    for folder in places:
        if os.path.exists(folder / "meta.json"):  # unlike Path.exists, False for a folder that is closed to us
            return folder
    for folder in places:
        if os.path.isdir(folder):
            raise ValueError(f"run {run}: {folder} is not the folder of a run, it holds no meta.json")
    raise ValueError(f"run {run}: no such folder, neither here nor in --savedir {savedir}")
