"""The lists that classify settings: a new setting fails here until it is put into those that it belongs to.

What changes what is learned, and so makes another experiment, `test_ladder.py` asks: the ladder pins it.
"""

import dataclasses

from monobeast.autotuning import COSTLY
from monobeast.commands.benchmark import _NOT_KEPT
from monobeast.config import AUTO, Config
from monobeast.environments.atari import ATARI_ONLY
from monobeast.plotting.run_groups import _IRRELEVANT, _SPEED
from monobeast.runs.resumption import _FIXED, _OF_A_START

GROUPS = {setting.name: setting.metadata["group"] for setting in dataclasses.fields(Config)}


def of_groups(*groups):
    return {name for name, group in GROUPS.items() if group in groups}


def test_every_list_is_of_settings():
    assert _IRRELEVANT | _SPEED | {*COSTLY, *_NOT_KEPT, *_FIXED, *_OF_A_START} <= set(GROUPS)


def test_what_is_no_part_of_an_experiment_is_refused_by_a_benchmark_or_does_no_harm_there():
    harmless = {"seed", "preset", "log_interval_s", "checkpoint_interval_s", "disable_checkpoint", "disable_cuda"}
    harmless |= {"stall_timeout_s", "max_bad_updates", "actor_timeout_s", "max_actor_restarts", "start_method"}
    harmless |= {"evaluate_every", "evaluate_episodes"}  # what they cost may be what is to be measured

    assert _IRRELEVANT - of_groups("test") == harmless | set(_NOT_KEPT)


def test_what_changes_the_cost_of_a_step_decides_whether_a_measurement_holds():
    free = {"total_steps", "learning_rate", "learning_rate_schedule", "alpha", "epsilon", "rmsprop_start"}
    free |= {"grad_norm_clipping", "force_lag", "sticky_actions", "life_loss_terminal"}
    by_its_name = {"device"}  # the GPU's

    assert set(GROUPS) - {*COSTLY, *AUTO} == free | by_its_name | _IRRELEVANT | of_groups("loss") - {*COSTLY}


def test_what_weights_and_saved_state_hang_on_does_not_change_on_resuming():
    may_change = {"exact_resume", "total_steps", "max_seconds", "stall_timeout_s", "log_interval_s", "tensorboard"}
    may_change |= {"wandb", "checkpoint_interval_s", "disable_checkpoint", "evaluate_every", "evaluate_episodes"}
    may_change |= {*AUTO, "unroll_length", "num_buffers", "actor_timeout_s", "max_actor_restarts", "start_method"}
    may_change |= {"batch_size", "learning_rate", "learning_rate_schedule", "alpha", "epsilon", "rmsprop_start"}
    may_change |= {"grad_norm_clipping", "max_bad_updates", "force_lag", "compile", "device", "disable_cuda"}
    may_change |= {"precision", "memory_format", "env_kwargs", "life_loss_terminal", *ATARI_ONLY}
    may_change |= of_groups("loss", "test")

    assert set(GROUPS) - {*_FIXED, *_OF_A_START} == may_change - set(_FIXED)
