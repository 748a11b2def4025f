"""Writes the blocks of README.md and of docs/ that hold results, and the plots of Pong: `python scripts/results.py`."""

import argparse
import json
import re
import shlex
import sys
import textwrap
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import ladder
import lag
import numpy as np
import recorder
from pages import fill, table

from monobeast.__main__ import run_command
from monobeast.atari_scores import human_normalized, reference_scores
from monobeast.environments.atari import is_atari
from monobeast.environments.registry import find_spec
from monobeast.runs.progress import RECENT_EPISODES
from monobeast.runs.recorded_run import RecordedRun

PAGES = tuple(recorder.ROOT / name for name in ("docs/results.md", "docs/troubleshooting.md", "README.md"))
PICTURE = recorder.ROOT / "docs" / "pong.png"
NETWORKS_PICTURE = PICTURE.with_name("pong-networks.png")

# Settings that affect an Atari score.
_MEANING = (
    "sticky_actions life_loss_terminal full_action_space noop_max frame_skip reward_clipping max_episode_frames".split()
)

# Settings in which trials differ, and steps at which they are compared.
_TRIED = "use_lstm precision total_steps unroll_length batch_size optimizer learning_rate epsilon rmsprop_start".split()
_TRIED += ["baseline_cost", "entropy_cost", "entropy_cost_end"]
# The value in runs that are older than the setting.
_BEFORE = {"optimizer": "rmsprop", "entropy_cost_end": "as at the start", "precision": "float32"}
_SYMPTOMS = ("entropy", "explained_variance", "dead_units_1", "dead_units_4", "feature_std", "logits_std")
_CAME_OF_THEM = ("pong-1", "pong-lstm-1")  # runs of the ladder
_MILESTONES = (250_000, 500_000, 1_000_000, 2_000_000, 3_000_000, 4_000_000)

# Columns that tell of a run's health, with the format of each.
_HEALTH = {"rho_clipped": ".2f", "effective_sample_size": ".3f", "kl": ".2g", "explained_variance": ".2f"}
_HEALTH |= {"policy_lag_mean": ".1f"}

# Runs of Pong that are compared at the same steps, up to the end of the shortest.
_NETWORKS = (
    *("pong-deep-1", "pong-1", "pong-noframeskip-1", "pong-wide-1", "pong-bfloat16-1", "pong-bfloat16-wide-1"),
    "pong-lstm-1",
)
_NETWORKS_AT = (250_000, 500_000, 750_000, 1_000_000, 1_250_000, 1_500_000, 1_750_000, 2_000_000)


def write_pages() -> None:
    """Regenerates the blocks of all pages, in place."""
    sys.path.append(str(ladder.TESTS))
    for page in PAGES:
        page.write_text(render(page.read_text()))


def render(page: str) -> str:
    """The page with its blocks, each between two comments, regenerated."""
    makers = {"ladder": render_ladder, "networks": render_networks, "trials": render_trials}
    makers |= {"pong": render_pong, "lag": render_lag, "health": render_health}
    return fill(page, __file__, makers)


def render_ladder() -> str:
    """A section for every rung that has a recorded run."""
    return "\n\n".join(_render_rung(name, rung) for name, rung in ladder.RUNGS.items() if _recorded(name))


def render_lag() -> str:
    """The outcome of each correction at each lag; empty without a record."""
    if not lag.FOLDER.is_dir():
        return ""
    return f"![lag]({lag.PICTURE.name})\n\n{_table(lag.tabulate(lag.read()))}"


def render_pong() -> str:
    """A paragraph on the rung of Pong; empty without a record."""
    found = _recorded("pong")
    if not found:
        return ""
    run = found[0][0]
    returns = run.episodes.returns[-RECENT_EPISODES :]
    score = recorder.read_test(run.folder)
    machine = f"{run.meta['cpu_count']} cores of {run.meta['cpu']}, {run.meta['gpu'] or 'no GPU'}"
    text = (
        f"Pong without sticky actions, one seed: after {run.meta['step']:,} agent steps ({_wall_time(run)} on "
        f"{machine}, other jobs beside it), the mean return of the last {RECENT_EPISODES} training episodes is "
        f"{returns.mean():.2f} of 21, and `test` scores {score.mean:.2f} ± {score.deviation:.2f} over "
        f"{score.num_episodes} games."
    )
    return f"![{PICTURE.stem}](docs/{PICTURE.name})\n\n{textwrap.fill(text, 120)}"


def render_networks() -> str:
    """Returns of the runs of Pong at the same steps; empty without all of them."""
    if not _are_recorded(_NETWORKS):
        return ""
    return f"![{NETWORKS_PICTURE.stem}]({NETWORKS_PICTURE.name})\n\n{_table([_describe_network(n) for n in _NETWORKS])}"


def _describe_network(name: str) -> dict[str, str]:
    run = RecordedRun(recorder.RESULTS / name)
    config = run.config
    row = {"run": f"`{name}`", "network": config["network"] + (" with an LSTM" if config["use_lstm"] else "")}
    row |= {"precision": config.get("precision", _BEFORE["precision"])}
    return row | {f"{step / 1e6:g}M": f"{_return_at(run, step):.1f}" for step in _NETWORKS_AT}


def render_health() -> str:
    """The health of the first run of every variant: medians of the first, the middle and the last tenth of its rows."""
    found = [_recorded(name) for name in ladder.RUNGS]
    first = {id(variant): run for runs in found for run, variant in reversed(runs)}
    return _table([_describe_health(run) for run in first.values()])


def _describe_health(run: RecordedRun) -> dict[str, str]:
    tenths = tenths_of(len(run.logs["step"]))
    row = {"run": f"`{run.name}`", "rows": f"{len(run.logs['step'])}"}
    for column, digits in _HEALTH.items():
        row[f"`{column}`"] = ", ".join(f"{np.nanmedian(run.logs[column][tenth]):{digits}}" for tenth in tenths)
    return row


def tenths_of(num_rows: int) -> tuple[slice, slice, slice]:
    """The first, the middle and the last tenth of a run's rows, each one row at least."""
    tenth, middle = max(1, num_rows // 10), num_rows // 2
    return slice(tenth), slice(middle - num_rows // 20, middle + num_rows // 20 + 1), slice(-tenth, None)


def draw_pong() -> None:
    """Plots the run of Pong beside an earlier trial."""
    labels = ["the Atari preset", "before: entropy cost 0.01, images with their mean"]
    _draw(["pong-1", "trials/entropy-0.01"], labels, PICTURE)


def draw_networks() -> None:
    """Plots these runs, but for the one under Pong's older id: `plot` draws one environment at a time."""
    names = [name for name in _NETWORKS if RecordedRun(recorder.RESULTS / name).config["env"] == "ALE/Pong-v5"]
    _draw(names, names, NETWORKS_PICTURE)


def _draw(names: list[str], labels: list[str], picture: Path) -> None:
    flags = [flag for label in labels for flag in ("--label", label)]
    if run_command(["plot", *(str(recorder.RESULTS / name) for name in names), "--out", str(picture), *flags]):
        raise SystemExit(1)


def _are_recorded(names: Iterable[str]) -> bool:
    return all((recorder.RESULTS / name).is_dir() for name in names)


def _return_at(run: RecordedRun, step: int) -> float:
    """Mean return of the last 100 episodes that had ended by a step."""
    return run.episodes.returns[run.episodes.steps <= step][-RECENT_EPISODES:].mean()


def _recorded(name: str) -> list[tuple[RecordedRun, ladder.Variant]]:
    found = [(recorder.RESULTS / run, variant) for run, variant, _ in ladder.runs_of(name)]
    return [(RecordedRun(folder), variant) for folder, variant in found if folder.is_dir()]


def _render_rung(name: str, rung: ladder.Rung) -> str:
    runs = _recorded(name)
    machine = {f"{run.meta['cpu_count']} cores of {run.meta['cpu']}, {run.meta['gpu'] or 'no GPU'}" for run, _ in runs}
    lines = [f"### {rung.title}", "", f"    scripts/reproduce {name}", ""]
    for variant in rung.variants:
        flags = shlex.join(ladder.flags_of(variant, rung.seeds[0]))
        path = f"PYTHONPATH={ladder.TESTS.name} " if ":" in variant.settings["env"] else ""  # of a stub
        lines += [_wrap(f"{path}python -m monobeast train {flags}"), ""]
    lines += [f"Machine: {'; '.join(sorted(machine))}.", ""]
    lines.append(_table([_describe_run(run) for run, _ in runs]))
    spec = find_spec(runs[0][0].config["env"])
    if is_atari(spec):
        lines += ["", *_render_atari([run for run, _ in runs], spec.kwargs["game"])]
    return "\n".join(lines)


def _wrap(command: str) -> str:
    """A command as an indented block, with line continuations."""
    lines = [""]
    for part in re.split(r" (?=--)", command):
        if len(lines[-1]) + len(part) > 110:
            lines.append("")
        lines[-1] += f" {part}" if lines[-1] else part
    return " \\\n        ".join(f"    {line}" if i == 0 else line for i, line in enumerate(lines))


def _describe_run(run: RecordedRun) -> dict[str, Any]:
    """One row of a rung's table."""
    returns = run.episodes.returns[-RECENT_EPISODES :]
    checks = json.loads((run.folder / recorder.CHECKS_FILE).read_text())
    outcomes = [f"{one['check']}: {one['value']:.4g}, {'reached' if one['holds'] else 'missed'}" for one in checks]
    return {
        "run": f"`{run.name}`",
        "commit": ", ".join(f"`{commit[:10]}`" for commit in dict.fromkeys(part["git_commit"] for part in run.starts)),
        "wall time": _wall_time(run),
        "agent steps": f"{run.meta['step']:,}",
        f"return of the last {RECENT_EPISODES} episodes": f"{returns.mean():.2f} ± {returns.std(ddof=1):.2f}",
        "episodes": f"{len(run.episodes.returns):,}",
        "bounds": "; ".join(outcomes),
    }


def _wall_time(run: RecordedRun) -> str:
    """Total time of all parts of a run that was stopped and resumed."""
    times = [[datetime.fromisoformat(part[name]) for name in ("start", "end")] for part in run.starts]
    minutes, seconds = divmod(int(sum((end - start).total_seconds() for start, end in times)), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {seconds} s"


def _render_atari(runs: list[RecordedRun], game: str) -> list[str]:
    """The scores beside published ones, and the settings that affect them."""
    references = reference_scores()[game]
    scores = dict(map(_describe_test, runs))
    scores |= {
        "random (DQN papers)": f"{references.random:g}",
        "human (DQN papers)": f"{references.human:g}",
        "IMPALA shallow, 200M frames (table C.1)": f"{references.impala_shallow_200M_frames:g}",
        "IMPALA deep, 200M frames (table C.1)": f"{references.impala_deep_200M_frames:g}",
        "MonoBeast, 200M frames, sticky actions (Cleanba's authors)": (
            f"{references.monobeast_200M_frames_sticky_mean:g} ± {references.monobeast_200M_frames_sticky_std:g}"
        ),
    }
    rows = [
        {"agent": agent, "score": text, "human-normalized": f"{human_normalized(game, float(text.split()[0])):.1f} %"}
        for agent, text in scores.items()
    ]
    meaning = ", ".join(f"`{name}` {runs[0].config[name]}" for name in _MEANING)
    return [_table(rows), "", f"Settings that affect the score: {meaning}."]


def _describe_test(run: RecordedRun) -> tuple[str, str]:
    score, frames = recorder.read_test(run.folder), run.meta["step"] * run.config["frame_skip"]
    how = f"`test`, {score.num_episodes} games, sampled, {frames / 1e6:.0f}M frames"
    return f"`{run.name}`, {how}", f"{score.mean:.2f} ± {score.deviation:.2f}"


def render_trials() -> str:
    """One row per trial and per run that followed from them: settings, returns over time, health of the features."""
    folders = sorted(path for path in (recorder.RESULTS / "trials").glob("*") if path.is_dir())
    folders += [path for path in (recorder.RESULTS / name for name in _CAME_OF_THEM) if path.is_dir()]
    return _table([_describe_trial(RecordedRun(folder)) for folder in folders])


def _describe_trial(run: RecordedRun) -> dict[str, Any]:
    row = {"trial": f"`{run.name}`"} | {name: f"{run.config.get(name, _BEFORE.get(name))}" for name in _TRIED}
    for step in _MILESTONES:
        row[f"{step / 1e6:g}M"] = f"{_return_at(run, step):.2f}" if run.meta["step"] >= step else ""
    row["end"] = f"{run.episodes.returns[-RECENT_EPISODES:].mean():.2f}"
    row["at"] = f"{run.meta['step'] / 1e6:.2f}M"
    return row | {name: _last(run, name) for name in _SYMPTOMS}


def _last(run: RecordedRun, column: str) -> str:
    """The last value of a column of logs.csv; empty if the run is older than the column."""
    values = run.logs.get(column, np.empty(0))
    values = values[~np.isnan(values)]
    return f"{values[-1]:.2g}" if len(values) else ""


def _table(rows: list[dict[str, Any]]) -> str:
    """Of rows with the same names in the same order; there is at least one."""
    return table([*rows[0]], [row.values() for row in rows])


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    write_pages()
    if _recorded("pong"):
        draw_pong()
    if _are_recorded(_NETWORKS):
        draw_networks()
