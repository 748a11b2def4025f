"""Groups runs that are seeds of one experiment, and finds the differences between experiments."""

import dataclasses
from typing import Any, NamedTuple

from monobeast.config import Config
from monobeast.runs.recorded_run import RecordedRun

# Whatever is not named here is taken to change what is learned, a flag of tomorrow as well. Not named, for instance:
# --total_steps, over which the learning rate falls; --num_actors and --num_buffers, which change the policy lag.
_IRRELEVANT = {
    *("seed", "xpid", "savedir", "resume", "exact_resume"),  # what seeds of one experiment differ in
    *("log_interval_s", "checkpoint_interval_s", "disable_checkpoint", "tensorboard", "wandb"),  # what is kept of a run
    *("timeline", "evaluate_every", "evaluate_episodes"),  # how it is looked at meanwhile
    *("max_seconds", "stall_timeout_s", "max_bad_updates"),  # when a run ends
    *("actor_timeout_s", "max_actor_restarts", "start_method"),  # how it is kept alive
    "disable_cuda",  # the device that it led to is recorded
    "preset",  # the settings that it led to are recorded
    *(setting.name for setting in dataclasses.fields(Config) if setting.metadata["group"] == "test"),
}
# These decide where and how fast it is computed, not what, rounding aside: they count where time does.
_SPEED = {"device", "num_learner_threads", "compile", "memory_format"}


class RunGroup(NamedTuple):
    """Seeds of one experiment."""

    label: str  # the settings that tell it from the other groups, such as "batch_size 8"; empty for a single group
    runs: list[RecordedRun]


def require_one_environment(runs: list[RecordedRun]) -> None:
    """Raises ValueError unless all runs have the same environment; otherwise returns have different units."""
    first = runs[0]
    for run in runs:
        if run.config["env"] != first.config["env"]:
            raise ValueError(
                f"run {run.folder} is of {run.config['env']}, run {first.folder} of {first.config['env']}: "
                "their returns have no common scale; plot one environment at a time"
            )


def require_different(runs: list[RecordedRun]) -> None:
    """Raises ValueError if a run is given twice, since it would count as two seeds."""
    seen: dict[Any, RecordedRun] = {}
    for run in runs:
        folder = run.folder.resolve()
        if folder in seen:
            raise ValueError(f"run {run.folder}: is given twice, the other time as {seen[folder].folder}")
        seen[folder] = run


def require_alike(runs: list[RecordedRun], by_time: bool) -> None:
    """Raises ValueError, naming what differs, unless all runs are seeds of one experiment."""
    faults = []
    for name, values in _differences(runs, by_time).items():
        examples = [f"{value} in {runs[values.index(value)].folder}" for value in dict.fromkeys(values)]
        faults.append(f"{name} is {', '.join(examples)}")
    if faults:
        raise ValueError(f"--as_one: the runs are of unlike settings: {'; '.join(faults)}")


def group_runs(runs: list[RecordedRun], by_time: bool) -> list[RunGroup]:
    """The runs in groups of equal settings, in the order of their first runs.

    Args:
        runs: all of the same environment.
        by_time: whether times will be compared, so that settings that affect the speed count, too.
    """
    differences = _differences(runs, by_time)
    groups: dict[str, RunGroup] = {}
    for i, run in enumerate(runs):
        label = ", ".join(f"{name} {values[i]}" for name, values in differences.items())
        groups.setdefault(label, RunGroup(label, [])).runs.append(run)
    return list(groups.values())


def _differences(runs: list[RecordedRun], by_time: bool) -> dict[str, list[str]]:
    """The settings that differ between runs, each with its value in every run."""
    settings = [_relevant_settings(run, by_time) for run in runs]
    names = dict.fromkeys(name for own in settings for name in own)
    values = {name: [own.get(name, "not recorded") for own in settings] for name in names}
    return {name: texts for name, texts in values.items() if len(set(texts)) > 1}


def _relevant_settings(run: RecordedRun, by_time: bool) -> dict[str, str]:
    """A run's settings as texts; a flag newer than the run counts as its default, usually the former behavior."""
    defaults = {setting.name: setting.default for setting in dataclasses.fields(Config)}
    ignored = _IRRELEVANT if by_time else _IRRELEVANT | _SPEED
    settings = {name: _text(value) for name, value in (defaults | run.config).items()}
    return {name: text for name, text in (settings | _changed_settings(run)).items() if name not in ignored}


def _changed_settings(run: RecordedRun) -> dict[str, str]:
    """Settings that changed when the run was resumed: "8 then 32 (from step 1000)" differs from 32 throughout."""
    texts: dict[str, str] = {}
    for start in run.starts:
        for name, (before, now) in (start.get("changes") or {}).items():
            since = f"{_text(now)} (from step {start.get('resumed_from_step')})"
            texts[name] = f"{texts.get(name, _text(before))} then {since}"
    return texts


def _text(value: Any) -> str:
    if value is None:
        return "none"
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f"{value:.15g}" if is_number else str(value)  # a whole number may stand for a float
