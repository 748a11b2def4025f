"""A preset fills what is not given; the environment chooses one where none is named."""

import dataclasses
import json

import pytest

from monobeast import environments
from monobeast.__main__ import run_command
from monobeast.config import AUTO, Config
from monobeast.presets import PRESETS


# Copied from the sources, not from the code.
SOURCES = {
    # Table G.1 of arXiv 1802.01561; it has no decay, which is from the flags of its authors' experiment.py.
    "paper": {
        **{"unroll_length": 20, "batch_size": 32, "discounting": 0.99, "baseline_cost": 0.5, "entropy_cost": 0.01},
        **{"optimizer": "rmsprop", "learning_rate": 0.0006, "momentum": 0.0, "epsilon": 0.01, "alpha": 0.99},
        **{"grad_norm_clipping": 40.0, "reward_clipping": "abs_one"},
    },
    # The defaults of the flags in TorchBeast's monobeast.py.
    "torchbeast": {
        **{"unroll_length": 80, "batch_size": 8, "discounting": 0.99, "baseline_cost": 0.5, "entropy_cost": 0.0006},
        **{"optimizer": "rmsprop", "learning_rate": 0.00048, "momentum": 0.0, "epsilon": 0.01, "alpha": 0.99},
        **{"grad_norm_clipping": 40.0, "reward_clipping": "abs_one"},
    },
}
# A constant entropy cost; a learning rate that falls to 0 in a line; no sharing of forward passes.
COMMON = {"entropy_cost_end": None, "learning_rate_schedule": "linear", "envs_per_actor": 1}


@pytest.mark.parametrize("preset", SOURCES)
def test_the_presets_of_others_have_the_numbers_that_they_published(preset):
    config = dataclasses.asdict(environments.resolve(Config(env="ALE/Pong-v5", preset=preset)))
    published = SOURCES[preset] | COMMON

    assert {name: config[name] for name in published} == published


# TensorFlow's average of squared gradients starts at 1, PyTorch's at 0.
@pytest.mark.parametrize(("preset", "start"), [("paper", 1.0), ("torchbeast", 0.0)])
def test_the_presets_of_others_start_their_optimizer_as_the_others_framework_does(preset, start):
    assert Config(preset=preset).rmsprop_start == start


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_names_every_setting_that_is_left_open_otherwise(preset):
    assert PRESETS[preset].keys() - set(AUTO) == PRESETS["atari"].keys()
    config = Config(preset=preset)

    assert {name: getattr(config, name) for name in PRESETS[preset]} == PRESETS[preset]


def test_what_is_given_goes_before_the_preset():
    config = Config(preset="paper", learning_rate=0.5)

    assert (config.learning_rate, config.batch_size) == (0.5, 32)


@pytest.mark.parametrize(
    ("env", "preset"), [("ALE/Pong-v5", "atari"), ("PongNoFrameskip-v4", "atari"), ("CartPole-v1", "classic")]
)
def test_the_environment_chooses_where_no_preset_is_named(env, preset):
    assert environments.resolve(Config(env=env)) == environments.resolve(Config(env=env, preset=preset))
    assert environments.resolve(Config(env=env, preset="torchbeast")).preset == "torchbeast"


def test_with_an_lstm_atari_games_have_a_preset_of_their_own():
    assert environments.resolve(Config(env="ALE/Pong-v5", use_lstm=True)).preset == "atari_lstm"
    assert environments.resolve(Config(env="ALE/Pong-v5", use_lstm=True, preset="atari")).preset == "atari"
    assert environments.resolve(Config(env="CartPole-v1", use_lstm=True)).preset == "classic"


def test_a_settings_check_holds_for_what_the_preset_brings():
    with pytest.raises(ValueError, match="--batch_size 8 --envs_per_actor 3: one must divide the other"):
        environments.resolve(Config(env="CartPole-v1", envs_per_actor=3))


def test_a_run_prints_and_records_its_preset_and_what_differs_from_it(tmp_path, capsys):
    flags = "--num_actors 0 --total_steps 80 --learning_rate 0.5 --env monobeast/Catch-v0 --xpid run".split()

    assert run_command([*flags, "--savedir", str(tmp_path)]) == 0

    line = next(line for line in capsys.readouterr().out.splitlines() if "preset" in line)
    assert "preset classic: unroll_length 10, " in line and "learning_rate 0.5, " in line
    assert line.endswith("; given in its place: learning_rate")
    recorded = json.loads((tmp_path / "run" / "meta.json").read_text())["config"]
    assert recorded["preset"] == "classic" and recorded["learning_rate"] == 0.5
    assert dataclasses.asdict(Config(**recorded)) == recorded
