"""The report: a table of all cases, and its summary."""

from collections import Counter
from typing import NamedTuple

from monobeast.vtrace_check.comparison import AGREES, DIFFERS, LEFT_OUT, VERDICTS, Comparison

_PLURALS = {AGREES: "agree", DIFFERS: "DIFFER"}


class Report(NamedTuple):
    """The results of all cases. Its text is a table."""

    comparisons: list[Comparison]
    diagnoses: dict[str, str]  # of each kind that differs by more than rounding: what is the matter
    notes: list[str]  # how the function was called, and what to try

    @property
    def agrees(self) -> bool:
        """Whether no case differs, and at least one was checked."""
        return {one.verdict for one in self.comparisons} - {LEFT_OUT} == {AGREES}

    @property
    def raises_everywhere(self) -> bool:
        """Whether the function raised in every case that was checked, and at least one was."""
        raised = [bool(one.raised) for one in self.comparisons if one.verdict != LEFT_OUT]
        return bool(raised) and all(raised)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._summary}>"  # not the arrays of every case

    @property
    def _summary(self) -> str:
        """How many cases came out how: those that agree first."""
        counts = Counter(one.verdict for one in self.comparisons)
        found = [f"{counts[one]} {_PLURALS.get(one, one)}" for one in VERDICTS if counts[one]]
        return f"{len(self.comparisons)} cases: {', '.join(found)}"

    def __str__(self) -> str:
        lines = [f"{'case':37} {'kind':14} {'vs':>8} {'advant.':>8}  verdict", *_describe_all(self.comparisons)]
        lines += ["", "Errors are relative to the largest magnitude in their trajectory.", *self.notes]
        lines.append(self._summary)
        lines += _describe_gap(self.comparisons)
        for text in dict.fromkeys(self.diagnoses.values()):
            lines.append(f"{', '.join(kind for kind in self.diagnoses if self.diagnoses[kind] == text)}: {text}")
        first_traceback = next((one.raised for one in self.comparisons if one.raised), "")
        return "\n".join([*lines, *(["", first_traceback.rstrip()] if first_traceback else [])])


def _describe_gap(comparisons: list[Comparison]) -> list[str]:
    """A line about what was not checked, if anything."""
    left_out = [one for one in comparisons if one.verdict == LEFT_OUT]
    checked = {one.case.kind for one in comparisons if one.verdict != LEFT_OUT}
    kinds = dict.fromkeys(one.case.kind for one in left_out)
    wholly = ", ".join(kind for kind in kinds if kind not in checked)
    in_part = ", ".join(kind for kind in kinds if kind in checked)
    missing = ", ".join(dict.fromkeys(name for one in left_out for name in one.missing))
    parts = [wholly, f"in part {in_part}" if in_part else "", f"it takes no {missing}" if missing else ""]
    return [f"Not checked: {'; '.join(part for part in parts if part)}."] if left_out else []


def _describe_all(comparisons: list[Comparison]) -> list[str]:
    """One line for each; repeated texts are left out."""
    lines, said = [], set()
    for comparison in comparisons:
        is_known = comparison.raised and comparison.remark in said
        said.add(comparison.remark)
        lines.append(_describe(comparison, "the same" if is_known else comparison.remark))
    return lines


def _describe(comparison: Comparison, remark: str) -> str:
    case, verdict = comparison.case, comparison.verdict + (f" ({remark})" if remark else "")
    errors = (comparison.vs_error, comparison.advantages_error)
    vs, advantages = ("" if error is None else f"{error:.1e}" for error in errors)
    return f"{case.name:37} {case.kind:14} {vs:>8} {advantages:>8}  {verdict}".rstrip()
