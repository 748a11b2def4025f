"""The ladder: tasks of growing difficulty, each with the settings that learn it and the bound that shows it.

Settings are pinned: all that a preset or the package may choose otherwise tomorrow is written out here, so that a
recorded result can be made again.
"""

import argparse
import datetime
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import recorder
import torch

from monobeast import environments
from monobeast.networks import AgentInput, make_network
from monobeast.plotting.recorded_run import RecordedRun
from monobeast.runs import checkpoint

ROOT = Path(__file__).resolve().parent.parent
TESTS = str(ROOT / "tests")  # where the task with a fixed horizon is
NUM_EPISODES = 100  # of a mean return


class Check(NamedTuple):
    """One bound: low <= measure(folder of the run) <= high."""

    what: str
    measure: Callable[[Path], float]
    low: float = -np.inf
    high: float = np.inf

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high  # never for NaN

    def describe(self) -> str:
        bounds = [(self.low, "at least"), (self.high, "at most")]
        return f"{self.what} " + " and ".join(f"{word} {bound:g}" for bound, word in bounds if np.isfinite(bound))


class Variant(NamedTuple):
    """Settings of one kind of run of a rung, and what each run of it, a seed each, must reach."""

    settings: dict[str, Any]
    checks: tuple[Check, ...]
    suffix: str = ""  # of the run's name, where a rung has several variants


class Rung(NamedTuple):
    title: str
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...] = (1,)


def mean_return(folder: Path) -> float:
    """Mean return of the last 100 training episodes; NaN where there were fewer."""
    returns = RecordedRun(folder).episodes.returns
    return float(np.mean(returns[-NUM_EPISODES:])) if len(returns) >= NUM_EPISODES else np.nan


def test_return(folder: Path) -> float:
    """Mean return of 20 games that `test` plays; what it says goes to test.txt."""
    where = ["--savedir", str(folder.parent), "--xpid", folder.name, "--num_episodes", "20", "--seed", "1"]
    command = [sys.executable, "-m", "monobeast", "test", *where]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    print(result.stdout, end="")
    (folder / recorder.TEST_FILE).write_text(result.stdout)
    return recorder.read_test(folder).mean


def relative_value(folder: Path) -> float:
    """V in the middle of an episode, as the run has learned it, in units of the endless value 1 / (1 - gamma)."""
    content = checkpoint.load(folder)
    config = checkpoint.read_config(content, folder)
    environment = environments.make(config, 1, [0])
    network = make_network(environment.observation_space, environment.action_space, config.network)
    network.load_state_dict(content["learner"]["network"])
    environment.reset()
    action = np.zeros(1, np.int64)
    step = environment.step(action)
    environment.close()
    arrays = (step.observation, step.is_first, action, step.reward)
    with torch.no_grad():
        output = network(AgentInput(*(torch.from_numpy(array[np.newaxis]) for array in arrays)), ())
    return output.baseline.item() * (1 - config.discounting)


def mean_at_least(bound: float) -> Check:
    return Check("mean return of the last 100 episodes", mean_return, low=bound)


def atari_checks(training: float, playing: float) -> tuple[Check, ...]:
    """Bounds of the mean return of the last 100 training episodes, and of 20 games of `test`."""
    return mean_at_least(training), Check("mean return of 20 games of `test`", test_return, low=playing)


CLASSIC = {
    **{"preset": "classic", "num_actors": 2, "num_buffers": 4, "envs_per_actor": 8},
    **{"unroll_length": 10, "batch_size": 8},
    **{"optimizer": "rmsprop", "learning_rate": 1e-3, "alpha": 0.99, "momentum": 0.0, "epsilon": 8e-4},
    **{"rmsprop_start": 1.0, "grad_norm_clipping": 40.0, "discounting": 0.99, "baseline_cost": 0.25},
    **{"entropy_cost": 0.01, "entropy_cost_end": 0.01, "learning_rate_schedule": "linear"},
    **{"correction": "vtrace", "life_loss_terminal": False},
    **{"reward_clipping": "none", "reward_scale": 1.0},
    **{"normalize_observations": False, "normalize_rewards": False},
    **{"clip_rho_threshold": 1.0, "clip_c_threshold": 1.0, "clip_pg_rho_threshold": 1.0, "vtrace_lambda": 1.0},
    **{"network": "mlp", "use_lstm": False, "precision": "float32", "memory_format": "channels_last"},
    **{"device": "cpu", "num_learner_threads": 1},
}
ATARI = CLASSIC | {
    **{"preset": "atari", "learning_rate": 7e-4, "entropy_cost_end": 0.0},
    **{"reward_clipping": "abs_one", "life_loss_terminal": True},
    **{"network": "shallow", "frame_skip": 4, "noop_max": 30, "sticky_actions": 0.0, "full_action_space": False},
    **{"max_episode_frames": 108_000, "log_interval_s": 30.0, "checkpoint_interval_s": 120.0},
}
CATCH = CLASSIC | {"env": "monobeast/Catch-v0", "learning_rate": 2e-3, "total_steps": 300_000}
# Chance that is still paid for at the end drops a pole now and then: with a constant 0.01 seed 1 ended at 444 and 478.
CARTPOLE = CLASSIC | {"env": "CartPole-v1", "entropy_cost_end": 0.0, "total_steps": 800_000}
# Without a clip: all environments end in the same step, and of large gradients that are cut to one length, those of
# the many batches without an end would outvote those of the few with one. V would be a median of its targets.
HORIZON = CLASSIC | {
    **{"env": "stub_environments:Horizon-v0", "discounting": 0.9, "total_steps": 100_000},
    "grad_norm_clipping": 1e9,
}
# Unrolls long enough for a gradient from the question, 12 steps after the cue, to the cue.
MEMORY = CLASSIC | {
    **{"env": "monobeast/Memory-v0", "total_steps": 150_000, "unroll_length": 20},
    **{"learning_rate": 2e-3, "epsilon": 0.01, "rmsprop_start": 0.0, "baseline_cost": 0.5},
}
COLOR_CATCH = CATCH | {"env": "monobeast/ColorCatch-v0"}
# Rewards of -16 a step, made as small as those of other tasks; a swing is a matter of a second, which is 20 steps. The
# standard deviation finds its own way down.
PENDULUM = CLASSIC | {
    **{"env": "Pendulum-v1", "total_steps": 600_000, "unroll_length": 20, "discounting": 0.9, "vtrace_lambda": 0.95},
    **{"reward_scale": 0.1, "entropy_cost": 0.0, "entropy_cost_end": 0.0},
}
# Rewards of a hundred, made as small as those of other tasks: else the clip cuts every gradient to one length. With ten
# times the entropy cost, chance is worth more than the fuel it burns, and a lander that has touched down never rests.
LUNAR_LANDER = CLASSIC | {
    **{"env": "LunarLander-v3", "total_steps": 3_000_000, "unroll_length": 20},
    **{"reward_scale": 0.02, "entropy_cost": 0.001, "entropy_cost_end": 0.0, "discounting": 0.995},
}
PONG = ATARI | {"total_steps": 3_000_000}
# The longer runs, in bfloat16: Pong learns no worse in it, in two thirds of the time.
PONG_BFLOAT16 = PONG | {"env": "ALE/Pong-v5", "precision": "bfloat16"}
BREAKOUT = ATARI | {"env": "ALE/Breakout-v5", "precision": "bfloat16", "total_steps": 10_000_000}
QBERT = ATARI | {"env": "ALE/Qbert-v5", "precision": "bfloat16", "total_steps": 5_000_000}

RUNGS = {
    "catch": Rung(
        "Catch, 0.95 of the best",
        (Variant(CATCH, (mean_at_least(0.95),)),),
        seeds=(1, 2, 3, 4, 5),
    ),
    "cartpole": Rung(
        "CartPole, solved",
        (Variant(CARTPOLE, (mean_at_least(475),)),),
        seeds=(1, 2, 3, 4, 5),
    ),
    "horizon": Rung(
        "A fixed horizon: the endless value, since a truncation is no end",
        (
            Variant(HORIZON, (Check("learned value / (1 / (1 - gamma))", relative_value, low=0.95, high=1.05),)),
            # The same, shown to be missed where the truncation is taken for an end.
            Variant(
                HORIZON | {"env_kwargs": '{"taken_for_end": true}'},
                (Check("learned value / (1 / (1 - gamma))", relative_value, high=0.75),),
                suffix="-taken-for-end",
            ),
        ),
    ),
    "memory": Rung(
        "Memory: what an LSTM is for",
        (
            Variant(MEMORY | {"use_lstm": True}, (mean_at_least(0.95),), suffix="-lstm"),
            # Chance is 1 / 2; 0.65 is three standard deviations of the mean of 100 guesses above it.
            Variant(MEMORY, (Check("mean return of the last 100 episodes", mean_return, high=0.65),), suffix="-mlp"),
        ),
    ),
    "acrobot": Rung(
        "Acrobot, solved",
        (Variant(CLASSIC | {"env": "Acrobot-v1", "total_steps": 500_000}, (mean_at_least(-100),)),),
    ),
    "lunarlander": Rung(
        "LunarLander, solved",
        (Variant(LUNAR_LANDER, (mean_at_least(200),)),),
        seeds=(1, 2, 3),
    ),
    "colorcatch": Rung(
        "Catch by two choices at once (MultiDiscrete), 0.9 of the best",
        (Variant(COLOR_CATCH, (mean_at_least(0.9),)),),
        seeds=(1, 2, 3),
    ),
    "pendulum": Rung(
        "Pendulum by continuous actions (Box)",
        (Variant(PENDULUM, (mean_at_least(-300),)),),
        seeds=(1, 2, 3),
    ),
    "pong": Rung("Pong without sticky actions", (Variant(PONG | {"env": "ALE/Pong-v5"}, atari_checks(18, 19)),)),
    "pong-noframeskip": Rung(
        "Pong by its older name", (Variant(PONG | {"env": "PongNoFrameskip-v4"}, atari_checks(18, 19)),)
    ),
    "pong-bfloat16": Rung("Pong in bfloat16", (Variant(PONG_BFLOAT16, atari_checks(18, 19)),)),
    "pong-lstm": Rung(
        "Pong with an LSTM",
        (Variant(PONG_BFLOAT16 | {"use_lstm": True, "total_steps": 4_000_000}, atari_checks(0, 0)),),
    ),
    # No bound but to have learned something: what it reaches in so few steps is the question.
    "pong-deep": Rung(
        "Pong with the deep network",
        (Variant(PONG_BFLOAT16 | {"network": "deep", "total_steps": 2_000_000}, atari_checks(-20, -20)),),
    ),
    "breakout": Rung("Breakout without sticky actions", (Variant(BREAKOUT, atari_checks(100, 100)),)),
    # A random policy scores 164, a person 13,455 (the table of `test`).
    "qbert": Rung("Qbert without sticky actions", (Variant(QBERT, atari_checks(1_000, 1_000)),)),
}


def runs_of(name: str, seeds: tuple[int, ...] | None = None) -> list[tuple[str, Variant, int]]:
    """The runs of a rung: name, variant and seed of each."""
    rung = RUNGS[name]
    return [
        (f"{name}{variant.suffix}-{seed}", variant, seed)
        for seed in seeds or rung.seeds
        for variant in rung.variants
    ]


def flags_of(variant: Variant, seed: int) -> list[str]:
    """The command line of a run, after `monobeast train`, but for where it is kept."""
    flags = []
    for name, value in (variant.settings | {"seed": seed}).items():
        flags += [f"--{'' if value else 'no_'}{name}"] if isinstance(value, bool) else [f"--{name}", str(value)]
    return flags


def train(variant: Variant, seed: int, savedir: Path, xpid: str) -> int:
    """Trains in a process of its own; returns its exit code. A signal to this process is the run's."""
    flags = [*flags_of(variant, seed), "--savedir", str(savedir), "--xpid", xpid]
    print(f"\n{shlex.join(['python', '-m', 'monobeast', 'train', *flags])}", flush=True)
    search_path = os.pathsep.join(filter(None, [TESTS, os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [sys.executable, "-m", "monobeast", "train", *flags], env=os.environ | {"PYTHONPATH": search_path}
    )
    # A terminal sends Ctrl-C to the run as well, which then saves what it has.
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, _: process.send_signal(number))
    try:
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def check(variant: Variant, folder: Path) -> list[dict[str, Any]]:
    """Measures a run, keeps the outcome in its folder, prints it."""
    outcomes = []
    for bound in variant.checks:
        value = bound.measure(folder)
        holds = bound.holds(value)
        outcomes.append({"check": bound.describe(), "value": value, "holds": holds})
        print(f"{folder.name}: {bound.describe()}: {value:.4g}: {'reached' if holds else 'NOT REACHED'}", flush=True)
    (folder / recorder.CHECKS_FILE).write_text(json.dumps(outcomes, indent=2) + "\n")
    return outcomes


def reproduce(name: str, seeds: tuple[int, ...] | None, savedir: Path, keep: bool) -> int:
    """Trains and checks every run of a rung; returns 0, 1 where a bound was missed, or a failed run's exit code."""
    all_hold = True
    for xpid, variant, seed in runs_of(name, seeds):
        exit_code = train(variant, seed, savedir, xpid)
        if exit_code:
            return exit_code
        all_hold &= all(outcome["holds"] for outcome in check(variant, savedir / xpid))
        if keep:
            print(f"recorded in {recorder.record(savedir / xpid)}")
    return 0 if all_hold else 1


def main() -> int:
    sys.path.append(TESTS)
    rungs = "; ".join(f"{name}: {rung.title}" for name, rung in RUNGS.items())
    parser = argparse.ArgumentParser(
        prog="scripts/reproduce", description=f"Trains a rung of the ladder and checks its bound. {rungs}.",
        epilog="exit codes: 0 reached, 1 not reached or a run failed, 2 a bad flag, 130 and 143 stopped",
    )  # fmt: skip
    parser.add_argument("rungs", nargs="+", choices=RUNGS, metavar="NAME", help=", ".join(RUNGS))
    parser.add_argument("--seeds", type=int, nargs="+", help="instead of the rung's own")
    parser.add_argument("--savedir", default="~/logs/monobeast", help="a folder is made in it (default: %(default)s)")
    parser.add_argument("--record", action="store_true", help="keep the runs' small files in results/")
    chosen = parser.parse_args()
    now = datetime.datetime.now()
    worst = 0
    for name in chosen.rungs:
        savedir = Path(chosen.savedir).expanduser().absolute() / f"{name}-{now:%Y%m%d-%H%M%S}"
        worst = max(worst, reproduce(name, chosen.seeds, savedir, chosen.record))
        if worst > 1:
            break  # stopped
    return worst


if __name__ == "__main__":
    sys.exit(main())
