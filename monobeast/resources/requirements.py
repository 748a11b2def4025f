"""Compares what a run needs with what the machine has, before anything starts; suggests settings that fit."""

import logging
import math
from typing import NamedTuple

from monobeast.config import Config, to_flags
from monobeast.environments import Spaces
from monobeast.networks import Network
from monobeast.resources import dry_update, footprint, machine, smaller_settings
from monobeast.resources.footprint import Footprint
from monobeast.resources.machine import Machine

_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")
_SHM_MARGIN_PERCENT = 105  # of the size that is suggested for /dev/shm
_OPEN_FILES = "open files"

logger = logging.getLogger(__name__)


class Row(NamedTuple):
    """One thing that a run needs."""

    what: str
    needed: int
    available: float | None  # None: unknown
    complaint: str  # where it does not fit, with {needed} and {available}
    remedy: str = ""  # that leaves the settings as they are, with {needed} or {gibibytes}
    is_bytes: bool = True
    tolerance: int = 0  # how much more may be needed than is available
    parts: dict[str, int] | None = None  # of what is needed

    @property
    def fits(self) -> bool:
        """Whether there is enough, as far as known."""
        return self.available is None or self.needed <= self.available + self.tolerance

    def format(self, number: float | None) -> str:
        """A number of this row in readable form."""
        if number is None:
            return "unknown"
        return format_bytes(int(number)) if self.is_bytes else format_count(number)

    def complain(self) -> str:
        """A text with both numbers."""
        return self.complaint.format(needed=self.format(self.needed), available=self.format(self.available))


class Plan(NamedTuple):
    """Needed and available resources; the last row, threads, never refuses a run."""

    config: Config  # resolved
    rows: list[Row]
    refusal: str | None
    warning: str | None
    estimate: int | None  # bytes that all processes will take together; None: unknown
    memory: int | None  # bytes available; None: unknown

    @property
    def is_tight(self) -> bool:
        """Whether more memory will be taken than is available, though the least that is needed is there."""
        return self.estimate is not None and self.memory is not None and self.estimate > self.memory


class DoesNotFit(ValueError):
    """This machine is too small for the run."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan.refusal)
        self.plan = plan


def check(config: Config, spaces: Spaces, network: Network) -> None:
    """Refuses a run that does not fit; raises this process's limit of open files if it is too low.

    Args:
        config: Resolved.
        spaces: Of one environment.
        network: The learner's, on any device; not changed.

    Raises:
        ValueError: `DoesNotFit`; its message names what is needed, what is available, and what would fit.
    """
    plan = require_fit(config, spaces, network)
    _allow_open_files(plan)
    if plan.warning is not None:
        logger.warning("%s", plan.warning)
    if plan.is_tight:
        taken, there = format_bytes(plan.estimate), format_bytes(plan.memory)
        logger.warning("the run will take about %s of memory and %s is available", taken, there)


def require_fit(config: Config, spaces: Spaces, network: Network) -> Plan:
    """Refuses like `check`, but changes nothing.

    Raises:
        ValueError: `DoesNotFit`.
    """
    plan = make_plan(config, spaces, network)
    if plan.refusal is not None:
        raise DoesNotFit(plan)
    return plan


def make_plan(config: Config, spaces: Spaces, network: Network) -> Plan:
    """Computes what `check` needs, and tries an update if the learner uses a GPU; changes nothing."""
    sizes, resources = footprint.measure(config, spaces, network), machine.read()
    rows, smaller = compare(config, sizes, resources), {}
    if not _all_fit(rows):
        later = _with_less_memory(resources)
        smaller = smaller_settings.find(config, lambda changed: _surely_fits(changed, sizes, later))
    elif config.device != "cpu":  # only now: the batch might not even fit in this machine's own memory
        row, smaller = _try_update(config, spaces, network)
        rows.append(row)
    refusal = None if _all_fit(rows) else _refuse(config, rows, smaller)
    threads = _compare_threads(config, resources.cores)
    warning = None if threads.fits else threads.complain()
    return Plan(config, [*rows, threads], refusal, warning, footprint.estimate(config, sizes), resources.memory)


def _surely_fits(config: Config, sizes: Footprint, resources: Machine) -> bool:
    """Whether the least that a run needs is there, and so is what it will take, as far as both are known."""
    expected = footprint.estimate(config, sizes)
    has_room = expected is None or resources.memory is None or expected <= resources.memory
    return has_room and _all_fit(compare(config, sizes, resources))


def _with_less_memory(resources: Machine) -> Machine:
    """The same with less free memory, since other programs may take some before a suggestion is followed."""
    shared_memory, memory = (None if size is None else size * 95 // 100 for size in resources[:2])
    return resources._replace(shared_memory=shared_memory, memory=memory)


def _all_fit(rows: list[Row]) -> bool:
    return all(row.fits for row in rows)


def compare(config: Config, sizes: Footprint, resources: Machine) -> list[Row]:
    """Compares everything that can be computed."""
    shared, memory = footprint.shared_memory(config, sizes), footprint.memory(config, sizes)
    return [
        Row(
            "shared memory",
            sum(shared.values()),
            resources.shared_memory,
            "rollout slots and weights need {needed} of shared memory and /dev/shm has {available} free",
            "start the container with --shm-size={gibibytes}g"
            if machine.is_container()
            else "enlarge it with mount -o remount,size={gibibytes}G /dev/shm",
            parts=shared,
        ),
        Row(
            "memory, at least",
            sum(memory.values()),
            resources.memory,
            "the run needs at least {needed} of memory and {available} is available",
            parts=memory,
        ),
        *_compare_open_files(config, sizes, resources),
        Row(
            "processes and threads",
            footprint.processes(config),
            resources.processes,
            "the run needs {needed} processes and threads, and the limit is {available}",
            is_bytes=False,
        ),
    ]


def _compare_open_files(config: Config, sizes: Footprint, resources: Machine) -> list[Row]:
    used, limit = 0, None
    if resources.open_files is not None:
        used, limit = resources.open_files.used, resources.open_files.hard  # the soft limit is raised as needed
    return [
        Row(
            f"{_OPEN_FILES}, {who}",
            needed,
            limit,
            f"{'' if who.startswith('an ') else 'the '}{who} needs {{needed}} open files and the limit is "
            "{available}",
            "raise the limit: as root ulimit -n {needed}, for docker --ulimit nofile={needed}",
            is_bytes=False,
        )
        for who, needed in footprint.open_files(config, sizes, used).items()
    ]


def _compare_threads(config: Config, cores: int) -> Row:
    """One thread more than cores is useful, since the learner's sometimes waits for the actors; others are not."""
    return Row(
        "threads on cores, one over is fine",
        config.num_actors + config.num_learner_threads,
        cores,
        f"--num_actors {config.num_actors} --num_learner_threads {config.num_learner_threads}: "
        "{needed} threads share {available} cores, which is slower than fewer",
        is_bytes=False,
        tolerance=1,
    )


def _try_update(config: Config, spaces: Spaces, network: Network) -> tuple[Row, dict[str, int]]:
    """Runs an update on zeros on the GPU; if it does not fit, smaller ones, to find a batch size that does."""
    available, tried = dry_update.free_memory(config.device) or 0, config
    while (peak := dry_update.measure_peak(tried, spaces, network)) is None:
        smaller = smaller_settings.halve_batch(tried)
        if smaller is None:
            least = f"--batch_size {tried.batch_size}"
            complaint = f"not even {least} fits: {config.device} has {{available}} of memory free"
            return Row("GPU memory of an update", available + 1, available, complaint), {}
        tried = smaller
    complaint = f"an update needs about {{needed}} of GPU memory and {config.device} has {{available}} free"
    if tried is config:
        return Row("GPU memory of an update", peak, max(available, peak), complaint), {}
    needed = max(available + 1, peak * config.batch_size // tried.batch_size)
    return Row("GPU memory of an update", needed, available, complaint), {"batch_size": tried.batch_size}


def _refuse(config: Config, rows: list[Row], smaller: dict[str, int]) -> str:
    """One line: the settings, what is too small for them, and what would fit."""
    bad = [row for row in rows if not row.fits]
    present = {name: getattr(config, name) for name in smaller or smaller_settings.SIZES}
    ways = [f"{' '.join(to_flags(smaller))} would fit"] if smaller else []
    if len(bad) == 1 and bad[0].remedy:
        gibibytes = -(-bad[0].needed * _SHM_MARGIN_PERCENT // (100 * 2**30))  # "g" of docker and of mount
        ways.append(bad[0].remedy.format(needed=bad[0].needed, gibibytes=gibibytes))
    way = ", or ".join(ways) or "smaller values of these are not enough"
    return f"{' '.join(to_flags(present))}: {', and '.join(row.complain() for row in bad)}; {way}"


def _allow_open_files(plan: Plan) -> None:
    most = max((row for row in plan.rows if row.what.startswith(_OPEN_FILES)), key=lambda row: row.needed)
    try:
        machine.allow_open_files(most.needed)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"--num_actors {plan.config.num_actors}: {most.complain()}, but this process may not have as many: {error}"
        ) from None


def format_bytes(number: int) -> str:
    """A readable size: "9.9 MB", "56.4 GB", "124 GB"; in integer arithmetic, since flags can exceed any float."""
    power = min(_power_of_ten(number) // 3, len(_UNITS) - 1)
    tenths = number * 10 // 1000**power
    if power == 0 or tenths >= 1000:
        return f"{format_count(tenths // 10)} {_UNITS[power]}"
    return f"{tenths // 10}.{tenths % 10} {_UNITS[power]}"


def format_count(number: float) -> str:
    """A number with commas; a very long one as a power of ten."""
    if number == math.inf:
        return "no limit"
    return f"{number:,}" if number < 10**15 else f"10^{_power_of_ten(number)}"


def _power_of_ten(number: float) -> int:
    """The power of ten of a number's first digit; Python refuses to print numbers with thousands of digits."""
    return int(math.log10(max(1, number)))
