"""A Chrome trace of all processes over a few seconds of a run, for chrome://tracing or ui.perfetto.dev."""

import json
import logging
from pathlib import Path
from typing import Any, NamedTuple

WINDOW_S = 5.0
_WARM_UP_S = 5.0  # after the first update; a run that is over before has its last WINDOW_S in the trace

logger = logging.getLogger(__name__)


class _Span(NamedTuple):
    pid: int
    name: str
    start: float
    end: float


class Timeline:
    """Gathers spans in the learner's process, including the actors', and writes them once.

    All times are from `time.perf_counter`, which is one clock for all processes of a machine.
    """

    def __init__(self, path: Path) -> None:
        """Will write to `path`, replacing an existing file."""
        self._path = path
        self._start: float | None = None
        self._spans: list[_Span] = []
        self._names: dict[int, str] = {}
        self._is_written = False

    def start(self, now: float) -> None:
        """Starts the recording after the first update; spans that end later count."""
        if self._start is None:
            self._start = now

    def add(self, pid: int, process: str, name: str, start: float, end: float) -> None:
        """Adds a span of a process; drops it if the trace is full.

        Args:
            pid: Of the process.
            process: Its name, such as "actor 0".
            name: Of the work.
            start: Of the span, in seconds.
            end: Of the span, in seconds.
        """
        if self._is_written or self._start is None or end < self._start:
            return
        self._names[pid] = process
        self._spans.append(_Span(pid, name, start, end))
        if end > self._start + _WARM_UP_S + WINDOW_S:
            self.write()

    def write(self) -> None:
        """Writes the recorded seconds, unless already written. A file that cannot be written does not end the run."""
        if self._is_written or not self._spans:
            return
        self._is_written = True
        end = max(span.end for span in self._spans)
        seconds = min(WINDOW_S, end - min(span.start for span in self._spans))  # less of a run that is over before
        try:
            self._path.write_text(json.dumps(self._to_trace()))
            logger.info("the timeline of %.1f seconds is in %s", seconds, self._path)
        except OSError as error:
            logger.error("--timeline %s: cannot be written: %s", self._path, error.strerror)
        self._spans.clear()

    def _to_trace(self) -> dict[str, Any]:
        """The format of chrome://tracing: microseconds since the window's start, one row per process."""
        begin = max(span.end for span in self._spans) - WINDOW_S
        events: list[dict[str, Any]] = [
            {"ph": "M", "name": "process_name", "pid": pid, "tid": pid, "args": {"name": name}}
            for pid, name in self._names.items()
        ]
        for pid, name, start, end in self._spans:
            start = max(start, begin)
            if end > begin:
                when = {"ts": 1e6 * (start - begin), "dur": 1e6 * (end - start)}
                events.append({"ph": "X", "name": name, "pid": pid, "tid": pid} | when)
        return {"traceEvents": events, "displayTimeUnit": "ms"}
