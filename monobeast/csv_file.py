"""A CSV file of a run: one header, rows of rising steps, whole lines, also over several starts."""

import csv
import io
import os
from pathlib import Path
from typing import Any


class CsvFile:
    """Writes rows; cells of None stay empty.

    Args:
        path: Of the file.
        columns: Its header.
        up_to_step: None begins the file anew. A number goes on with the file that is there: rows beyond that step are
            dropped, as is a last line without its end, and columns that came since are empty in the rows before.
    """

    def __init__(self, path: Path, columns: tuple[str, ...], up_to_step: int | None = None) -> None:
        kept = [] if up_to_step is None else _read_rows(path, up_to_step)
        partial = path.with_name(path.name + ".partial")
        with open(partial, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows([row.get(name, "") for name in columns] for row in kept)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)  # at no moment are the rows before lost
        self._file = open(path, "a", newline="")
        self._writer = csv.writer(self._file)

    def write(self, cells: Any) -> None:
        """Adds a row, which is on disk after `flush`."""
        self._writer.writerow([f"{cell:.15g}" if isinstance(cell, float) else cell for cell in cells])

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _read_rows(path: Path, up_to_step: int) -> list[dict[str, str]]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    whole_lines = content[: content.rfind(b"\n") + 1].decode(errors="replace")
    # After a power cut a file may end in zeros.
    rows = csv.DictReader(io.StringIO(whole_lines.replace("\0", ""), newline=""))
    return [row for row in rows if (row.get("step") or "").isdecimal() and int(row["step"]) <= up_to_step]
