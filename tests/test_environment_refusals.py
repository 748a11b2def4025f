"""Environments that can't be had: refused with the flag, the value and what would do."""

import subprocess
import sys

import pytest
from gymnasium.spaces import Discrete
from stub_environments import stub_config

from monobeast import environments
from monobeast.config import Config


@pytest.mark.parametrize(
    ("env", "suggestion"),
    [
        ("CartPole", "CartPole-v1"),
        ("cartpole-v1", "CartPole-v1"),
        ("catch", "monobeast/Catch-v0"),
        ("stub_environments:Fixd5-v0", "stub_environments:Fixed5-v0"),
        ("stub_environments:CartPol-v1", "did you mean CartPole-v1"),
        ("not an id", r"pprint_registry\(\)"),
    ],
)
def test_an_unknown_environment_is_refused_with_a_suggestion(env, suggestion):
    with pytest.raises(ValueError, match=f"--env {env}: no such environment.*{suggestion}"):
        environments.check(Config(env=env))


def test_a_module_that_is_missing_is_named():
    with pytest.raises(ValueError, match="--env no_such_module:X-v0: .*'no_such_module'.*ModuleNotFoundError"):
        environments.check(Config(env="no_such_module:X-v0"))


@pytest.mark.parametrize(
    ("source", "message"),
    [("1 / 0", "ZeroDivisionError"), ("raise SystemExit(3)", "SystemExit: 3"), ("(", "SyntaxError")],
)
def test_a_module_that_fails_is_named_with_its_error(source, message, tmp_path, monkeypatch):
    (tmp_path / "failing_module.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(ValueError, match=f"'failing_module' failed with {message}"):
        environments.check(Config(env="failing_module:X-v0"))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (stub_config("OddSpaces-v0", action="bytes"), r"action space Box\(0, 255, \(2,\), uint8\).*Box of floats"),
        (stub_config("OddSpaces-v0", action="nothing"), r"action space Box\(.*\(0,\), float32\).*an element at least"),
        (stub_config("OddSpaces-v0", action="bits"), r"action space MultiBinary\(3\).*only Discrete, Multi"),
        (stub_config("OddSpaces-v0", observation="text"), r"observation space Text\(.*\) is not supported; only Box"),
        (
            stub_config("OddSpaces-v0", observation="sequence in dict"),
            r"its observation space Sequence\(Discrete\(3\).*\), at observation\['far'\]\[1\], is not supported; ",
        ),
        (stub_config("OddSpaces-v0", observation="graph"), r"its observation space Graph\(.*\) is not supported; only"),
        (stub_config("OddSpaces-v0", observation="empty"), r"empty Dict observation space is not allowed"),
        (stub_config("OddSpaces-v0", observation="many"), r"has 201 parts: must have at least 1 and at most 200"),
        (stub_config("OddSpaces-v0", observation="long double"), r"its dtype float128 must be bool, whole numbers or"),
    ],
)
def test_a_space_that_is_not_supported_is_named_with_what_is(config, message):
    with pytest.raises(ValueError, match=message):
        environments.check(config)


@pytest.mark.parametrize(("k", "message"), [(0, "its reset or close failed with"), (-1, "making it failed with")])
def test_a_failing_environment_is_refused_with_its_own_exception_as_the_cause(k, message):
    with pytest.raises(ValueError, match=f"--env stub_environments:Boom-v0.*{message} RuntimeError: boom") as caught:
        environments.check(stub_config("Boom-v0", k=k))

    assert isinstance(caught.value.__cause__, RuntimeError)


def test_unknown_arguments_are_refused_in_the_environments_own_words():
    with pytest.raises(ValueError, match="--env_kwargs .*unexpected keyword argument 'nn'"):
        environments.check(stub_config("Fixed-v0", nn=3))


@pytest.mark.parametrize(
    "settings",
    [
        {"frame_skip": 2},
        {"noop_max": 5},
        {"sticky_actions": 0.25},
        {"full_action_space": True},
        {"max_episode_frames": 9},
    ],
)
def test_a_setting_that_only_atari_knows_is_refused_elsewhere(settings):
    (name,) = settings

    with pytest.raises(ValueError, match=f"--{name} .*Atari only"):
        environments.check(stub_config("Fixed5-v0", **settings))


def test_a_setting_that_only_atari_knows_is_taken_where_it_is_true():
    config = stub_config("Fixed5-v0", frame_skip=1, noop_max=0, sticky_actions=0.0, full_action_space=False)

    assert environments.check(config).action == Discrete(2)


WITHOUT_ALE = """
import sys
sys.modules["ale_py"] = None  # as if it were not installed
from monobeast import environments
from monobeast.config import Config
print(environments.check(Config(env="CartPole-v1")).action.n)
try:
    environments.check(Config(env="ALE/Pong-v5"))
except ValueError as error:
    print(error)
"""


def test_without_ale_py_other_environments_work_and_atari_is_refused_by_name():
    played = subprocess.run([sys.executable, "-c", WITHOUT_ALE], capture_output=True, text=True, check=True)

    num_actions, refusal = played.stdout.splitlines()
    assert num_actions == "2"
    assert refusal.startswith("--env ALE/Pong-v5: no such environment") and "ale-py can't be imported" in refusal
