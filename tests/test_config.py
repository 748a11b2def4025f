import dataclasses

import pytest

from monobeast.config import Config


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_actors": -1}, "--num_actors -1: must be at least 0"),
        ({"unroll_length": 0}, "--unroll_length 0: must be at least 1"),
        ({"batch_size": 0}, "--batch_size 0: must be at least 1"),
        ({"total_steps": -5}, "--total_steps -5: must be at least 1"),
        ({"frame_skip": 0}, "--frame_skip 0: must be at least 1"),
        ({"frame_skip": -1}, "--frame_skip -1: must be at least 1"),
        ({"discounting": 1.5}, "--discounting 1.5: must be at least 0 and at most 1"),
        ({"discounting": float("nan")}, "--discounting nan: must be a number that is finite, at least 0 and at most 1"),
        ({"learning_rate": 1e300}, r"--learning_rate 1e\+300: must be a number that float32 has, above 0"),
        ({"stall_timeout_s": 1e12}, r"--stall_timeout_s 1000000000000.0: must be above 0 and at most 1e\+09"),
        ({"learning_rate": float("inf")}, "--learning_rate inf: must be a number that is finite, above 0"),
        ({"learning_rate": 0.0}, "--learning_rate 0.0: must be above 0"),
        ({"batch_size": 6, "envs_per_actor": 4}, "--batch_size 6 --envs_per_actor 4: one must divide the other"),
        ({"num_actors": 4, "num_buffers": 3}, "--num_buffers 3: must be at least --num_actors 4"),
        ({"network": "resnet"}, "--network resnet: must be one of auto, mlp, shallow, deep, torchbeast"),
        ({"env": lambda: None}, "--env <function .*: must be of type str"),
        ({"env": " "}, "--env '': must be a Gymnasium id"),
        ({"xpid": "../up"}, "--xpid '../up': must be a folder's name"),
        ({"xpid": ".."}, "--xpid '..': must be a folder's name"),
        ({"xpid": "latest"}, "--xpid latest: is the link to the newest run"),
        ({"device": "tpu"}, "--device tpu: must be cpu, cuda or cuda:N"),
        ({"force_lag": 2, "exact_resume": True}, "--force_lag 2 --exact_resume: exclude each other, since weights"),
        ({"device": "cuda", "disable_cuda": True}, "--device cuda --disable_cuda: exclude each other"),
        ({"env_kwargs": "{"}, "--env_kwargs {: must be a JSON object"),
        ({"env_kwargs": "[1]"}, r"--env_kwargs \[1\]: must be a JSON object"),
        ({"num_actors": 2.5}, "--num_actors 2.5: must be of type int"),
        ({"unroll_length": True}, "--unroll_length True: must be of type int"),
        ({"evaluate_every": 0}, "--evaluate_every 0: must be at least 1"),
        ({"evaluate_episodes": 0}, "--evaluate_episodes 0: must be at least 1"),
        ({"sticky_actions": 1.5}, "--sticky_actions 1.5: must be at least 0 and at most 1"),
    ],
)
def test_a_bad_value_is_refused_with_flag_value_and_range(settings, message):
    with pytest.raises(ValueError, match=message):
        Config(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"num_actors": 0},
        {"num_actors": 1, "num_buffers": 1, "batch_size": 1, "envs_per_actor": 1},
        {"num_buffers": 2, "batch_size": 8, "envs_per_actor": 1},  # fewer slots than a batch: they go round
        {"batch_size": 4, "envs_per_actor": 8},
        {"batch_size": 8, "envs_per_actor": 4},
        {"clip_c_threshold": None},
        {"discounting": 1},
        {"env_kwargs": '{"difficulty": 1}'},
    ],
)
def test_a_fitting_value_is_taken(settings):
    config = Config(**settings)

    assert {name: getattr(config, name) for name in settings} == settings


def test_a_config_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().batch_size = 1


def test_every_setting_explains_itself():
    assert all(setting.metadata["help"] for setting in dataclasses.fields(Config))
