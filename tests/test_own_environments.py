"""Environments that a callable given from Python makes: what is refused, and what is recorded of them."""

import functools
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from command_lines import run
from csv_rows import rows_of
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stub_environments import Fixed, OddSpaces
from stub_networks import Plain, make_wide

from monobeast import environments, user_code
from monobeast.config import Config
from monobeast.environments import EnvStep, VectorEnvironment
from monobeast.makers import Makers
from monobeast.runs import checkpoint
from monobeast.training import train

ROOT = Path(__file__).parent.parent
SETTINGS = {"num_actors": 0, "num_learner_threads": 1, "seed": 1, "xpid": "run", "total_steps": 400}


def make_fixed(config, num_envs, seeds, make_one=Fixed):
    """Environments of five steps."""
    envs = SyncVectorEnv([make_one] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)
    return VectorEnvironment(envs, seeds, life_loss_terminal=False)


class Own:
    """What has the attributes of a VectorEnvironment is as good; something may be amiss with it."""

    observation_space, action_space = gymnasium.spaces.Box(0, 9, (3,), np.float32), Discrete(2)

    def __init__(self, config, num_envs, seeds, **changes):
        self.num_envs = num_envs
        self.steps = 0
        for name, value in changes.items():
            setattr(self, name, value)

    def reset(self):
        return self.answer(is_first=True, reward=0)

    def step(self, actions):
        self.steps = (self.steps + 1) % 6
        return self.answer(is_first=self.steps == 0, reward=float(self.steps != 0))

    def answer(self, is_first, reward):
        is_last, ones = self.steps == 5, np.ones(self.num_envs)
        flags = [(ones * value).astype(bool) for value in (is_first, is_last, is_last)]
        numbers = ones.astype(np.float32) * np.float32(reward), ones * self.steps, (ones * self.steps).astype(np.int64)
        observation = np.full((self.num_envs, 3), self.steps, np.float32)
        return EnvStep(observation, flags[0], numbers[0], *flags[1:], *numbers[1:])

    def close(self):
        pass


class Unsteady(Own):
    """Every answer is changed."""

    def answer(self, is_first, reward):
        return self.change(super().answer(is_first, reward))


def unsteady(change):
    return functools.partial(Unsteady, change=change)


def begin(tmp_path, make_environments=make_fixed, network=None, **settings):
    config = Config(**SETTINGS | {"savedir": str(tmp_path)} | settings)
    return train(config, network=network, make_environments=make_environments)


def meta_of(folder):
    return json.loads((folder / "meta.json").read_text())["config"]


def raise_no_envs(config, num_envs, seeds):
    raise RuntimeError("no environments\ntoday")


def bare(config, num_envs, seeds):
    return SyncVectorEnv([Fixed] * num_envs)


def resets_at_once(config, num_envs, seeds):
    envs = SyncVectorEnv([Fixed] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
    return VectorEnvironment(envs, seeds, life_loss_terminal=False)


EMPTY = functools.partial(Own, observation_space=gymnasium.spaces.Dict())
ODD = functools.partial(make_fixed, make_one=functools.partial(OddSpaces, observation="text"))


@pytest.mark.parametrize(
    ("maker", "message"),
    [
        (raise_no_envs, r"its call with \(config, 2, \[0, 1\]\) failed with RuntimeError: no environments today"),
        (lambda config: None, r"its call with \(config, 2, \[0, 1\]\) failed with TypeError"),
        (lambda *_: None, "gave a NoneType without num_envs, observation_space, action_space, reset, step, close: "),
        (bare, r"gave a SyncVectorEnv: must be wrapped, as monobeast.environments.VectorEnvironment\(envs, seeds, "),
        (resets_at_once, "failed with RuntimeError: .*autoreset mode must be AutoresetMode.NEXT_STEP"),
        (lambda config, num_envs, seeds: make_fixed(config, 1, [0]), "VectorEnvironment of num_envs 1: must be of 2"),
        (EMPTY, r"its observation space Dict\(\) has 0 parts: must have at least 1 and at most 200"),
        (ODD, r"its observation space Text\(.*only Box, Discrete, "),
        (functools.partial(Own, action_space=Discrete(2, start=1)), r"its action_space is Discrete\(2, start=1\): "),
        (functools.partial(Own, reset=lambda: 1 / 0), r"reset\(\) failed with ZeroDivisionError"),
        (functools.partial(Own, reset=lambda: (0, {})), r"reset\(\) gave a tuple: must be a monobeast.environments."),
        (functools.partial(Own, step=lambda actions: 1 / 0), r"step\(\) failed with ZeroDivisionError"),
        (functools.partial(Own, close=lambda: 1 / 0), r"close\(\) failed with ZeroDivisionError"),
        (
            unsteady(lambda step: step._replace(observation=step.observation.astype(float))),
            r"reset\(\)'s observation is float64 \[2, 3\]: must be float32 \[2, 3\]",
        ),
        (
            unsteady(lambda step: step._replace(reward=step.reward[:, None])),
            r"reset\(\)'s reward is float32 \[2, 1\]: must be float32 \[2\]",
        ),
        (
            unsteady(lambda step: step._replace(done=False)),
            r"reset\(\)'s done is a bool: must be bool \[2\]",
        ),
        (
            unsteady(lambda step: step._replace(is_first=step.done)),
            r"reset\(\)'s is_first is \[False, False\]: must be True everywhere",
        ),
        (7, "7: must be callable"),
    ],
)
def test_what_is_off_is_said_before_anything_starts(tmp_path, maker, message):
    with pytest.raises(ValueError, match=f"^make_environments=.*{message}") as caught:
        begin(tmp_path, maker)

    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("maker", [make_fixed, Own], ids=["wrapped", "of one's own"])
@pytest.mark.parametrize("num_actors", [0, pytest.param(1, id="an actor")])
def test_sound_ones_are_trained_in(tmp_path, maker, num_actors):
    result = begin(tmp_path, maker, num_actors=num_actors)

    assert (result.state, result.mean_episode_return) == ("complete", 5.0)
    assert meta_of(result.folder)["env"] == f"test_own_environments:{maker.__name__}(...)"
    assert meta_of(result.folder)["preset"] == "classic" and meta_of(result.folder)["reward_clipping"] == "none"


def test_a_policy_is_evaluated_in_them_beside_training(tmp_path):
    result = begin(tmp_path, make_fixed, evaluate_every=100, evaluate_episodes=2)

    assert rows_of(result.folder / "evaluations.csv")[-1]["mean_episode_return"] == "5"


def test_they_get_the_settings_and_a_seed_each(tmp_path):
    calls = []

    def make(config, num_envs, seeds):
        calls.append((config.discounting, num_envs, list(seeds)))
        return make_fixed(config, num_envs, seeds)

    begin(tmp_path, make, discounting=0.5, envs_per_actor=4)

    (tried, *_), (discounting, num_envs, seeds) = calls[0], calls[-1]
    assert tried == discounting == 0.5
    assert num_envs == len(set(seeds)) == 4 and all(0 <= seed < 2**31 for seed in seeds)


def test_a_run_of_them_goes_on_with_the_same_callables_alone(tmp_path, capfd):
    begin(tmp_path, network=Plain)
    again = {"resume": True, "xpid": "run", "savedir": str(tmp_path), "total_steps": 800}

    with pytest.raises(ValueError, match="^make_environments= of monobeast.train, for test_own_.* --network stub_netw"):
        train(Config(**again))
    with pytest.raises(ValueError, match=r"--env test_own_environments:Own\(...\): cannot change on --resume; the run"):
        train(Config(**again), network=Plain, make_environments=Own)
    with pytest.raises(ValueError, match="--network stub_networks:make_wide: cannot change on --resume; the run began"):
        train(Config(**again), network=make_wide, make_environments=make_fixed)
    assert train(Config(**again), network=Plain, make_environments=make_fixed).step == 800
    named = ["--network", "stub_networks:Plain"]
    exit_code, _, errors = run(capfd, "train", "--resume", "--xpid", "run", "--savedir", tmp_path, *named)
    assert exit_code == 2 and "make_environments= of monobeast.train, for test_own_environments:make_fixed(" in errors


def test_an_agent_is_played_in_an_environment_with_the_same_spaces(tmp_path, capfd):
    begin(tmp_path, network=functools.partial(Plain, size=5))
    assert meta_of(tmp_path / "run")["network"] == "stub_networks:Plain(...)"
    command = ["test", "--savedir", tmp_path, "--num_episodes", 1]

    exit_code, _, errors = run(capfd, *command)
    assert exit_code == 2 and "--env ID in place of test_own_environments:make_fixed(...) --network module:Cl" in errors
    named = ["--network", "test_own_environments:make_narrow"]
    exit_code, output, errors = run(capfd, *command, "--env", "stub_environments:Fixed5-v0", *named)
    assert (exit_code, errors) == (0, "") and "episode 1: return 5, 5 steps" in output
    exit_code, _, errors = run(capfd, *command, "--env", "CartPole-v1", *named)
    assert exit_code == 2 and "body.weight is [5, 3] in the saved weights, [5, 4] in this network" in errors


def make_narrow(observation_space, num_actions):
    return Plain(observation_space, num_actions, size=5)


@pytest.mark.parametrize(
    ("settings", "callables", "message"),
    [
        ({"env": "CartPole-v1"}, {"make_environments": make_fixed}, "--env CartPole-v1: not with make_environments="),
        ({"network": "mlp"}, {"network": Plain}, "--network mlp: not with network=, which stands in its place"),
        ({"use_lstm": True}, {"network": Plain}, "--use_lstm --network stub_networks:Plain: exclude each other"),
        ({"exact_resume": True}, {"make_environments": make_fixed}, "--exact_resume: not with make_environments=, of"),
        ({"num_actors": 1}, {"network": lambda *_: None}, "network=.*: cannot be pickled, .*; define it at the top"),
        ({"num_actors": 1}, {"make_environments": lambda *_: None}, "make_environments=.*<lambda>.*cannot be pickled"),
    ],
)
def test_what_cannot_be_together_is_refused(tmp_path, settings, callables, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        train(Config(**SETTINGS | {"savedir": str(tmp_path)} | settings), **callables)

    assert not list(tmp_path.iterdir())


def test_without_actors_nothing_need_be_pickled(tmp_path):
    result = begin(tmp_path, lambda *arguments: make_fixed(*arguments), network=lambda *spaces: Plain(*spaces))

    assert result.state == "complete"
    test = "test_own_environments:test_without_actors_nothing_need_be_pickled.<locals>.<lambda>(...)"
    assert meta_of(result.folder)["network"] == meta_of(result.folder)["env"] == test


class Caller:
    def __call__(self, observation_space, num_actions):
        return Plain(observation_space, num_actions)

    def make(self, observation_space, num_actions):
        return Plain(observation_space, num_actions)


@pytest.mark.parametrize(
    ("maker", "name"),
    [
        (Plain, "stub_networks:Plain"),
        (make_wide, "stub_networks:make_wide"),
        (functools.partial(functools.partial(Plain), size=3), "stub_networks:Plain(...)"),
        (Caller(), "test_own_environments:Caller(...)"),
        (Caller().make, "test_own_environments:Caller.make(...)"),
        (lambda *_: None, "test_own_environments:<lambda>(...)"),
        (len, "builtins:len"),
    ],
)
def test_a_callable_is_recorded_by_the_name_that_leads_to_it(maker, name):
    assert Makers(network=maker).record(Config()).network == user_code.name_of(maker) == name


def test_a_checkpoint_of_callables_opens_without_running_code(tmp_path):
    begin(tmp_path, network=Plain)

    config = checkpoint.load(tmp_path / "run")["config"]
    assert (config["env"], config["network"]) == ("test_own_environments:make_fixed(...)", "stub_networks:Plain")


def test_what_only_the_main_script_defines_late_ends_the_run_with_its_name(tmp_path):
    script = """
    import monobeast
    if __name__ == "__main__":
        from stub_networks import Plain

        class Late(Plain):
            pass

        sizes = {"num_actors": 1, "envs_per_actor": 2, "num_learner_threads": 1}
        config = monobeast.Config(env="monobeast/Catch-v0", savedir=".", xpid="run", **sizes)
        print(monobeast.train(config, network=Late).state)
    """
    (tmp_path / "script.py").write_text(textwrap.dedent(script))
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "PATH": ""}

    result = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100
    )

    assert (result.returncode, result.stderr) == (0, "") and result.stdout.endswith("failed\n")
    assert "Can't get attribute 'Late'" in result.stdout and "its network could not be made, or" in result.stdout
    assert meta_of(tmp_path / "run")["network"] == "script:Late"


def test_the_record_of_a_call_is_no_id_of_an_environment():
    with pytest.raises(ValueError, match="no such environment"):
        environments.check(Config(env="stub_environments:Fixed5-v0(...)"))
