"""Times forms of V-trace's backward recursion: `python -m monobeast.benchmarks.vtrace`.

Prints the median time of `vtrace.from_clipped_weights` for each T, B and form, and the time of the first call, which
compiles. A form is better than the loop only if it is faster for the T and B in use, including the time to compile.

* loop: T - 1 small sequential operations, the readable specification; on a GPU one launch each.
* scan: log2 T rounds of three operations on all steps at once (Hillis and Steele), log2 T times the arithmetic.
* compiled loop: the loop with `torch.compile`, which unrolls it; left out above T = 80, where compiling takes minutes.
* compiled scan: the scan with `torch.compile`, which fuses each round.
"""

import argparse
import functools
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.benchmark import Timer

from monobeast import vtrace

LONGEST_UNROLLED = 80

Form = Callable[..., vtrace.VTraceReturns]


def scan_backward(deltas: Tensor, factors: Tensor) -> Tensor:
    """Like `vtrace.accumulate_backward`, in log2 T rounds: after round k each sum has its first 2^k terms.

    Sums and products associate differently than in the loop, so the last bits differ. If c is not clipped, a product
    over many steps, which the loop never forms, can overflow although every term is finite.
    """
    T, reach = len(deltas), 1
    factors = factors.expand_as(deltas)
    while reach < T:
        longer = torch.addcmul(deltas[:-reach], factors[: T - reach], deltas[reach:])
        deltas = torch.cat([longer, deltas[-reach:]])
        factors = factors[:-reach] * factors[reach:]  # T + 1 - 2 reach are left: no fewer than the next round needs
        reach *= 2
    return deltas


FORMS: dict[str, Callable[[], Form]] = {
    "loop": lambda: vtrace.from_clipped_weights,
    "scan": lambda: functools.partial(vtrace.from_clipped_weights, accumulate=scan_backward),
    "compiled loop": lambda: torch.compile(FORMS["loop"](), dynamic=False),
    "compiled scan": lambda: torch.compile(FORMS["scan"](), dynamic=False),
}


def find_forms(T: int) -> list[str]:
    """The forms to measure at this T."""
    return [name for name in FORMS if name != "compiled loop" or T <= LONGEST_UNROLLED]


def make_form(name: str) -> Form:
    """A function with the arguments of `vtrace.from_clipped_weights`; a compiled one compiles in its first call."""
    return FORMS[name]()


def make_inputs(T: int, B: int, device: str) -> dict[str, Tensor]:
    """Random arguments of `from_clipped_weights`, some discounts 0, some weights 0."""
    generator = torch.Generator().manual_seed(0)
    rhos = torch.randn(T, B, generator=generator).exp().clamp(max=1.0)
    alive = torch.rand(T, B, generator=generator) > 0.02
    rhos, discounts = rhos * (torch.rand(T, B, generator=generator) > 0.02), 0.99 * alive
    names = ("clipped_rhos", "clipped_pg_rhos", "cs")
    inputs = dict.fromkeys(names, rhos) | {"discounts": discounts}
    inputs |= {name: torch.randn(T, B, generator=generator) for name in ("rewards", "values")}
    inputs["bootstrap_value"] = torch.randn(B, generator=generator)
    return {name: tensor.to(device) for name, tensor in inputs.items()}


def measure(form: Form, inputs: dict[str, Tensor], seconds: float) -> tuple[float, float]:
    """Seconds of the first call, including compilation, and of later ones (median)."""
    start = time.perf_counter()
    form(**inputs).vs.sum().item()  # the item waits for the device
    first = time.perf_counter() - start
    timer = Timer("form(**inputs)", globals={"form": form, "inputs": inputs}, num_threads=torch.get_num_threads())
    return first, timer.blocked_autorange(min_run_time=seconds).median


def main() -> None:
    """Prints one row for each T, B and form."""
    parser = argparse.ArgumentParser(description="Times the forms of V-trace's backward recursion.")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N (default: %(default)s)")
    parser.add_argument("--T", type=int, nargs="+", default=[20, 80, 320, 1280], metavar="INT", help="steps")
    parser.add_argument("--B", type=int, nargs="+", default=[8, 32, 256], metavar="INT", help="trajectories")
    parser.add_argument("--threads", type=int, default=1, metavar="INT", help="torch threads (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each row (default: %(default)s)")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"torch {torch.__version__}, {arguments.device}, {arguments.threads} threads")
    print(f"{'T':>5} {'B':>4}  {'form':14} {'call, us':>10} {'first call, s':>14}")
    for T in arguments.T:
        for B in arguments.B:
            inputs = make_inputs(T, B, arguments.device)
            torch.compiler.reset()  # else the next shape would be compiled for any shape
            for name in find_forms(T):
                first, later = measure(make_form(name), inputs, arguments.seconds)
                print(f"{T:5} {B:4}  {name:14} {later * 1e6:10.1f} {first:14.2f}", flush=True)


if __name__ == "__main__":
    main()
