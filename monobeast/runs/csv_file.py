"""A CSV file of a run: one header, rows with increasing steps, complete lines, also over several starts."""

import csv
import io
import logging
import os
from pathlib import Path
from typing import Any

from monobeast.files import replaced, sync

logger = logging.getLogger(__name__)


class CsvFile:
    """Writes rows; None gives an empty cell. Rows wait while the disk is full.

    Args:
        path: Of the file.
        columns: Its header.
        up_to_step: None starts a new file. A number continues the existing file: rows beyond that step and an
            incomplete last line are dropped, and new columns are empty in older rows.
    """

    def __init__(self, path: Path, columns: tuple[str, ...], up_to_step: int | None = None) -> None:
        kept = [] if up_to_step is None else _read_rows(path, up_to_step)
        with replaced(path) as partial:  # at no moment are the rows before lost
            with open(partial, "w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(columns)
                writer.writerows([row.get(name, "") for name in columns] for row in kept)
            sync(partial)
        self._path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
        self._lines = io.StringIO(newline="")
        self._writer = csv.writer(self._lines)
        self._waiting = b""  # what was to be written and is not yet
        self._is_failing = False

    def write(self, cells: Any) -> None:
        """Adds a row; `flush` writes it to the file."""
        self._writer.writerow([f"{cell:.15g}" if isinstance(cell, float) else cell for cell in cells])

    def flush(self) -> None:
        """Writes the added rows; if that fails, reports it once and tries again at the next call."""
        self._waiting += self._lines.getvalue().encode()
        self._lines.seek(0)
        self._lines.truncate()
        try:
            while self._waiting:
                # Not a buffered file: after an error nobody knows how much of its buffer was written.
                num_written = os.write(self._descriptor, self._waiting)
                self._waiting = self._waiting[num_written:]
            self._is_failing = False
        except OSError as error:
            if not self._is_failing:
                logger.error("%s cannot be written: %s; its rows wait", self._path, error.strerror)
            self._is_failing = True

    def close(self) -> None:
        self.flush()
        os.close(self._descriptor)


def _read_rows(path: Path, up_to_step: int) -> list[dict[str, str]]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    whole_lines = content[: content.rfind(b"\n") + 1].decode(errors="replace")
    # After a power cut a file may end in zeros.
    rows = split_rows(whole_lines.replace("\0", "").splitlines())
    return [row for row in rows if row.get("step", "").isdecimal() and int(row["step"]) <= up_to_step]


def split_rows(lines: list[str]) -> list[dict[str, str]]:
    """Cells by their column's name, of rows of numbers under a header; whatever is in a damaged row stays in that row.

    Not by `csv`, for which a stray quotation mark opens a cell that ends many lines later.
    """
    header, *rows = [line.split(",") for line in lines] or [[]]
    return [dict(zip(header, row)) for row in rows]
