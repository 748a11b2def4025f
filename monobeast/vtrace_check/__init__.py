"""Checks any V-trace function against the package's vectors: where it differs, and by which mistake.

From a function to a report: `signature` says how it is called, `arguments` what a case has for it, `adapter` calls it,
`outputs` reads what it returns, `comparison` measures that, `diagnosis` names the mistake, `report` prints.
Neither torch nor JAX is needed: torch is only imported for a function that takes only its tensors.
"""

from monobeast.vtrace_check.check import check_vtrace, compare
from monobeast.vtrace_check.report import Report

__all__ = ["Report", "check_vtrace", "compare"]
