"""The ladder: tasks of growing difficulty, each with the settings that learn it and the bound that shows it.

Settings are pinned: everything that a preset or the package may change later is written out here, so that a recorded
result can be reproduced.
"""

from typing import Any, NamedTuple

import recorder
from bounds import Check, atari_checks, mean_at_least, mean_return, relative_value

from monobeast.config import to_flags

TESTS = recorder.ROOT / "tests"  # where the task with a fixed horizon is


class Variant(NamedTuple):
    """Settings of one kind of run of a rung, and the bounds that each run must reach; one run per seed."""

    settings: dict[str, Any]
    checks: tuple[Check, ...]
    suffix: str = ""  # of the run's name, if a rung has several variants


class Rung(NamedTuple):
    title: str
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...] = (1,)


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
# An entropy bonus that lasts to the end drops a pole now and then: with a constant 0.01 seed 1 ended at 444 and 478.
CARTPOLE = CLASSIC | {"env": "CartPole-v1", "entropy_cost_end": 0.0, "total_steps": 800_000}
# Without gradient clipping: all environments end in the same step. If large gradients were clipped to one length, the
# many batches without an end would outvote the few with one, and V would be a median of its targets.
HORIZON = CLASSIC | {
    **{"env": "stub_environments:Horizon-v0", "discounting": 0.9, "total_steps": 100_000},
    "grad_norm_clipping": 1e9,
}
# Unrolls are long enough for a gradient from the question back to the cue, 12 steps before it.
MEMORY = CLASSIC | {
    **{"env": "monobeast/Memory-v0", "total_steps": 150_000, "unroll_length": 20},
    **{"learning_rate": 2e-3, "epsilon": 0.01, "rmsprop_start": 0.0, "baseline_cost": 0.5},
}
COLOR_CATCH = CATCH | {"env": "monobeast/ColorCatch-v0"}
# Rewards down to -16 per step are scaled to the size of other tasks' rewards. A swing takes about a second, which is 20
# steps. The standard deviation shrinks by itself.
PENDULUM = CLASSIC | {
    **{"env": "Pendulum-v1", "total_steps": 600_000, "unroll_length": 20, "discounting": 0.9, "vtrace_lambda": 0.95},
    **{"reward_scale": 0.1, "entropy_cost": 0.0, "entropy_cost_end": 0.0},
}
# Rewards of a hundred are scaled to the size of other tasks' rewards: otherwise every gradient is clipped to one
# length. With ten times the entropy cost, the entropy bonus outweighs the cost of fuel: a landed lander never rests.
LUNAR_LANDER = CLASSIC | {
    **{"env": "LunarLander-v3", "total_steps": 3_000_000, "unroll_length": 20},
    **{"reward_scale": 0.02, "entropy_cost": 0.001, "entropy_cost_end": 0.0, "discounting": 0.995},
}
PONG = ATARI | {"total_steps": 3_000_000}
# With sizes that `auto` may choose, where the lag is twice as high.
PONG_WIDE = PONG | {
    **{"env": "ALE/Pong-v5", "total_steps": 4_000_000},
    **{"num_actors": 1, "num_buffers": 2, "envs_per_actor": 32},
}
# The longer runs use bfloat16, which takes two thirds of the time.
PONG_BFLOAT16 = PONG | {"env": "ALE/Pong-v5", "precision": "bfloat16"}
# With the larger steps of the other runs, the LSTM's gates saturated before V had reached its level, and neither
# learned after that (docs/results.md).
PONG_LSTM = PONG_BFLOAT16 | {"use_lstm": True, "learning_rate": 3e-4, "epsilon": 0.01, "total_steps": 4_000_000}
BREAKOUT = ATARI | {"env": "ALE/Breakout-v5", "precision": "bfloat16", "total_steps": 10_000_000}
QBERT = ATARI | {
    **{"env": "ALE/Qbert-v5", "precision": "bfloat16", "total_steps": 5_000_000},
    **{"num_actors": 1, "num_buffers": 2, "envs_per_actor": 16},
}

RUNGS = {
    "catch": Rung(
        "Catch, 0.95 of the maximum",
        (Variant(CATCH, (mean_at_least(0.95),)),),
        seeds=(1, 2, 3, 4, 5),
    ),
    "cartpole": Rung(
        "CartPole, solved",
        (Variant(CARTPOLE, (mean_at_least(475),)),),
        seeds=(1, 2, 3, 4, 5),
    ),
    "horizon": Rung(
        "Fixed horizon: the value of an endless task, since a truncation is not a termination",
        (
            Variant(HORIZON, (Check("learned value / (1 / (1 - gamma))", relative_value, low=0.95, high=1.05),)),
            # Taking the truncation for a termination misses that value.
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
            # Guessing gives 1 / 2; 0.65 is three standard deviations of the mean of 100 guesses above it.
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
        "Catch with two choices at once (MultiDiscrete), 0.9 of the maximum",
        (Variant(COLOR_CATCH, (mean_at_least(0.9),)),),
        seeds=(1, 2, 3),
    ),
    "pendulum": Rung(
        "Pendulum with continuous actions (Box)",
        (Variant(PENDULUM, (mean_at_least(-300),)),),
        seeds=(1, 2, 3),
    ),
    "pong": Rung("Pong without sticky actions", (Variant(PONG | {"env": "ALE/Pong-v5"}, atari_checks(18, 19)),)),
    "pong-noframeskip": Rung(
        "Pong under its older id", (Variant(PONG | {"env": "PongNoFrameskip-v4"}, atari_checks(18, 19)),)
    ),
    "pong-wide": Rung("Pong with one actor of 32", (Variant(PONG_WIDE, atari_checks(18, 19)),)),
    "pong-bfloat16": Rung("Pong in bfloat16", (Variant(PONG_BFLOAT16, atari_checks(18, 19)),)),
    "pong-bfloat16-wide": Rung(
        "Pong in bfloat16 with one actor of 32",
        (Variant(PONG_WIDE | {"precision": "bfloat16"}, atari_checks(18, 19)),),
        seeds=(1, 2),
    ),
    "pong-lstm": Rung(
        "Pong with an LSTM",
        (Variant(PONG_LSTM, atari_checks(0, 0)),),
    ),
    # The bound only asks that it learned something: how far it gets in so few steps is the question.
    "pong-deep": Rung(
        "Pong with the deep network",
        (Variant(PONG_BFLOAT16 | {"network": "deep", "total_steps": 2_000_000}, atari_checks(-20, -20)),),
    ),
    "breakout": Rung("Breakout without sticky actions", (Variant(BREAKOUT, atari_checks(100, 100)),)),
    # A random policy scores 164, a person 13,455 (the table of `test`).
    "qbert": Rung("Qbert without sticky actions", (Variant(QBERT, atari_checks(1_000, 1_000)),)),
}


def runs_of(name: str, seeds: tuple[int, ...] | None = None) -> list[tuple[str, Variant, int]]:
    """The runs of a rung: name, variant and seed."""
    rung = RUNGS[name]
    return [
        (f"{name}{variant.suffix}-{seed}", variant, seed)
        for seed in seeds or rung.seeds
        for variant in rung.variants
    ]


def flags_of(variant: Variant, seed: int) -> list[str]:
    """The command line of a run, after `monobeast train`, but for where it is kept."""
    return to_flags(variant.settings | {"seed": seed})
