"""Environments whose every number is known, registered when this module is imported.

Give them as "stub_environments:Fixed5-v0"; an id without a number takes its arguments from `--env_kwargs`.
"""

import ctypes
import json
import multiprocessing
import os
import sys
import threading
import time

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, Sequence, Text, Tuple

from monobeast.config import Config


def stub_config(name, **settings):
    """Settings for a stub; what is not a setting of ours is an argument of its own."""
    ours = {key: settings.pop(key) for key in list(settings) if key in Config.__dataclass_fields__}
    return Config(env=f"stub_environments:{name}", env_kwargs=json.dumps(settings), **ours)


class Stub(gymnasium.Env):
    """Reward 1 a step and no end; the observation is the step number within the episode, in all elements."""

    metadata = {"render_modes": []}

    def __init__(self, shape=(3,)):
        self.observation_space = Box(-np.inf, np.inf, shape, np.float32)
        self.action_space = Discrete(2)
        self.step_number = 0

    def observation(self):
        return np.full(self.observation_space.shape, self.step_number, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.step_number = 0
        return self.observation(), {}

    def step(self, action):
        self.step_number += 1
        return self.observation(), 1.0, False, False, {}


class Fixed(Stub):
    """Terminates after n steps, with the same reward in each."""

    def __init__(self, n=5, reward=1.0):
        super().__init__()
        self.n, self.reward = n, reward

    def ends(self):
        return True, False

    def step(self, action):
        observation, _, _, _, info = super().step(action)
        terminated, truncated = self.ends() if self.step_number == self.n else (False, False)
        return observation, self.reward, terminated, truncated, info


class Trunc(Fixed):
    """As Fixed, but truncates."""

    def ends(self):
        return False, True


class Both(Fixed):
    """As Fixed, but terminates and truncates at once."""

    def ends(self):
        return True, True


class Horizon(Fixed):
    """Truncates after `horizon` steps, with reward 1 in each and always the same observation: no one can tell when.

    So the value is 1 / (1 - gamma) everywhere, 10 with gamma 0.9. Were the truncation taken for an end, k steps before
    it would be worth (1 - gamma^k) / (1 - gamma): with gamma 0.9 and 20 steps, 8.8 at the start, 1.0 in the last step
    and 6.0 on average. A V that can't tell them apart would settle between that and 6.9, where each target is of one
    step: 1 / (1 - 0.95 gamma). With `taken_for_end` it terminates in the same step, so that this can be seen.
    """

    def __init__(self, horizon=20, taken_for_end=False):
        super().__init__(n=horizon)
        self.taken_for_end = taken_for_end

    def ends(self):
        return self.taken_for_end, not self.taken_for_end

    def observation(self):
        return np.ones(self.observation_space.shape, np.float32)


class Boom(Stub):
    """Raises in step k; in reset, if k is 0; in its constructor, if k is negative."""

    def __init__(self, k=50):
        super().__init__()
        self.k = k
        if k < 0:
            raise RuntimeError("boom in the constructor")

    def reset(self, *, seed=None, options=None):
        if self.k == 0:
            raise RuntimeError("boom in reset")
        return super().reset(seed=seed, options=options)

    def step(self, action):
        result = super().step(action)
        if self.step_number == self.k:
            raise RuntimeError(f"boom in step {self.k}") from KeyError("k")
        return result


class Exit(Stub):
    """Calls `sys.exit(0)` in step k; in reset, if k is 0."""

    def __init__(self, k=30):
        super().__init__()
        self.k = k

    def reset(self, *, seed=None, options=None):
        if self.k == 0:
            sys.exit(0)
        return super().reset(seed=seed, options=options)

    def step(self, action):
        result = super().step(action)
        if self.step_number == self.k:
            sys.exit(0)
        return result


class Vanish(Stub):
    """The process ends in step k, without a word; in reset, if k is 0."""

    def __init__(self, k=30, code=0):
        super().__init__()
        self.k, self.code = k, code

    def reset(self, *, seed=None, options=None):
        if self.k == 0:
            os._exit(self.code)
        return super().reset(seed=seed, options=options)

    def step(self, action):
        result = super().step(action)
        if self.step_number == self.k:
            os._exit(self.code)
        return result


class Torch(Stub):
    """The reward is a number that says what torch is like in this process: its threads, or whether it uses a GPU."""

    def __init__(self, what="threads"):
        super().__init__()
        self.what = what

    def step(self, action):
        import torch

        observation, _, *rest = super().step(action)
        if self.what == "threads":
            return observation, float(torch.get_num_threads()), *rest
        devices = [name for name in map(_link_of, os.listdir("/proc/self/fd")) if "/dev/nvidia" in name]
        return observation, float(torch.cuda.is_initialized() or bool(devices)), *rest


def _link_of(descriptor):
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:  # that of the listing itself
        return ""


class Threaded(Stub):
    """Starts a thread that never ends."""

    def __init__(self):
        super().__init__()
        threading.Thread(target=time.sleep, args=(3600,)).start()


class HangOnReset(Stub):
    """The second reset of a process never returns: the first is that of the check before a run."""

    num_resets = 0

    def reset(self, *, seed=None, options=None):
        type(self).num_resets += 1
        if self.num_resets > 1:
            time.sleep(3600)
        return super().reset(seed=seed, options=options)


class Hang(Stub):
    """Step k never returns; with `hold_gil`, no other thread of the process runs any more.

    In the folder `hung` it leaves, before it does so, a file named by the number of its process.
    """

    def __init__(self, k=100, hold_gil=False, hung=None):
        super().__init__()
        self.k, self.hold_gil, self.hung = k, hold_gil, hung

    def step(self, action):
        result = super().step(action)
        if self.step_number == self.k and self.hung is not None:
            open(os.path.join(self.hung, str(os.getpid())), "a").close()
        while self.step_number == self.k:
            if self.hold_gil:
                ctypes.PyDLL(None).sleep(3600)
            else:
                time.sleep(3600)
        return result


class Unevaluated(Fixed):
    """As Fixed, with n = 5, but in the evaluator's process step 3 goes wrong: it raises, hangs or vanishes.

    With `once`, the path of a file that is made then, it does so a single time.
    """

    def __init__(self, what="raises", once=None):
        super().__init__()
        self.what, self.once = what, once

    def step(self, action):
        result = super().step(action)
        if self.step_number == 3 and multiprocessing.current_process().name == "evaluator" and self.is_time():
            self.go_wrong()
        return result

    def is_time(self):
        if self.once is None:
            return True
        is_first = not os.path.exists(self.once)
        open(self.once, "a").close()
        return is_first

    def go_wrong(self):
        if self.what == "raises":
            raise RuntimeError("boom in an evaluation")
        if self.what == "vanishes":
            os._exit(3)
        while True:
            time.sleep(3600)


class NaNReward(Stub):
    """The reward is NaN in step k, or another `value`."""

    def __init__(self, k=37, value="nan"):
        super().__init__()
        self.k, self.value = k, float(value)

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, self.value if self.step_number == self.k else reward, *rest


class Lives(Stub):
    """One of the lives is lost every `steps` steps; the game terminates with the last one."""

    def __init__(self, lives=3, steps=10):
        super().__init__()
        self.lives, self.steps = lives, steps

    def info(self):
        return {"lives": self.lives - self.step_number // self.steps}

    def reset(self, *, seed=None, options=None):
        observation, _ = super().reset(seed=seed, options=options)
        return observation, self.info()

    def step(self, action):
        observation, reward, _, truncated, _ = super().step(action)
        info = self.info()
        return observation, reward, info["lives"] == 0, truncated, info


class Counter(Stub):
    """The observation is the step number within the episode, float32 [1]."""

    def __init__(self, terminate_at=None, truncate_at=None):
        super().__init__(shape=(1,))
        self.terminate_at, self.truncate_at = terminate_at, truncate_at

    def step(self, action):
        observation, reward, _, _, info = super().step(action)
        return observation, reward, self.step_number == self.terminate_at, self.step_number == self.truncate_at, info


class RandStart(Fixed):
    """As Fixed, but episodes open with an observation drawn from the environment's own generator."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        return self.np_random.random(3, np.float32), {}


class Constant(Stub):
    """One observation in any Box, for ever: every element is `value`."""

    def __init__(self, value=0.0, dtype="float32", shape=(3,)):
        super().__init__()
        limits = np.finfo(dtype) if np.dtype(dtype).kind == "f" else np.iinfo(dtype)
        self.observation_space = Box(limits.min, limits.max, tuple(shape), dtype)
        self.value = value

    def observation(self):
        return np.full(self.observation_space.shape, self.value, self.observation_space.dtype)


class Echo(Stub):
    """Discrete(n, start=k) for actions and for observations; the observation is the last action as it came in."""

    def __init__(self, n=4, start=-2):
        super().__init__()
        self.observation_space = self.action_space = Discrete(n, start=start)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        return int(self.action_space.start), {}

    def step(self, action):
        _, *rest = super().step(action)
        return int(action), *rest


class Savable(Lives):
    """As Lives, but observations are drawn at random and add up, and the state can be told; in that it may be at fault.

    Args:
        fault: forgets: what was added up is left out; not plain: it is given as a set; raises: it is not given.
    """

    def __init__(self, lives=3, steps=4, fault=None):
        super().__init__(lives, steps)
        self.sum = np.zeros(3, np.float32)
        self.fault = fault

    def observation(self):
        self.sum += self.np_random.random(3, np.float32)  # in place: whoever keeps a state has to copy it
        return self.sum.copy()

    def reset(self, *, seed=None, options=None):
        self.sum = np.zeros(3, np.float32)
        return super().reset(seed=seed, options=options)

    def get_state(self):
        if self.fault == "raises":
            raise RuntimeError("no state today")
        state = {"step_number": self.step_number, "generator": self.np_random.bit_generator.state, "sum": self.sum}
        return state | {"forgets": {"sum": np.zeros(3, np.float32)}, "not plain": {"sum": {1}}}.get(self.fault, {})

    def set_state(self, state):
        self.step_number, self.sum = state["step_number"], state["sum"]
        self.np_random.bit_generator.state = state["generator"]

    def close(self):
        self.sum = None  # whoever asks for the state now is too late


class Parts(Savable):
    """An observation of parts of every kind, nested, which tells the step number n of the episode in each of them.

    Args:
        steps: of an episode.
        bad_step: in which the number in the first float64 part is not finite.
    """

    def __init__(self, steps=12, bad_step=None):
        super().__init__(lives=1, steps=steps)
        self.bad_step = bad_step
        image, switch = Box(0, 255, (36, 40, 3), np.uint8), Box(0, 1, (), np.bool_)
        self.observation_space = Tuple(
            [
                Dict({"a.b": image, "on": switch, "n": Discrete(16, start=-3)}),
                MultiDiscrete([[16, 17], [18, 19]], start=[[0, 0], [2, -2]]),
                MultiBinary(4),
                Tuple([Box(-99, 99, (2,), np.float64), Box(-99, 99, (), np.float16), Box(-99, 99, (1,), np.int8)]),
            ]
        )

    def observation(self):
        n = self.step_number
        bits = np.array([n >> i & 1 for i in range(4)], np.int8)
        first = np.full(2, np.nan if n == self.bad_step else n + 0.125)
        numbers = (first, np.asarray(n, np.float16), np.full(1, -n, np.int8))
        image = np.full((36, 40, 3), n, np.uint8)
        image[0] = 255  # the network takes images less their mean
        parts = {"a.b": image, "on": np.asarray(n % 2, bool), "n": n - 3}
        return parts, np.array([[n, n], [n + 2, n - 2]]), bits, numbers


class OddSpaces(Stub):
    """One space out of the ordinary, by name; the rest as in Stub."""

    OBSERVATIONS = {
        "dict": Dict(glyphs=Box(0, 9, (21, 79), np.int16), blstats=Box(0.0, 9.0, (27,), np.float32)),
        "tuple": Tuple((Discrete(2), Discrete(3))),
        "multi_discrete": MultiDiscrete([3, 2]),
        "text": Text(5),
        "sequence in dict": Dict(near=Box(0.0, 1.0, (2,)), far=Tuple([Discrete(2), Sequence(Discrete(3))])),
        "graph": Graph(Discrete(3), None),
        "empty": Dict(),
        "many": Tuple([Discrete(2)] * 201),
        "endless": Discrete(2**40),
        "matrix": MultiDiscrete([[3, 4], [2, 2]]),
        "long double": Box(0, 1, (2,), np.longdouble),
    }
    ACTIONS = {
        **{"multi_discrete": MultiDiscrete([3, 2]), "box": Box(-1.0, 1.0, (2,)), "one": Discrete(1)},
        **{"bytes": Box(0, 255, (2,), np.uint8), "nothing": Box(-1.0, 1.0, (0,)), "bits": MultiBinary(3)},
    }

    def __init__(self, observation=None, action=None):
        super().__init__()
        self.observation_space = self.OBSERVATIONS.get(observation, self.observation_space)
        self.action_space = self.ACTIONS.get(action, self.action_space)

    def observation(self):
        is_box = isinstance(self.observation_space, Box)
        return super().observation() if is_box else self.observation_space.sample()


class Acts(Fixed):
    """Actions in a space of any kind, by name. What comes must be of it; the observation shows it, flattened."""

    ACTIONS = {
        "two": MultiDiscrete([3, 2]),
        "one": MultiDiscrete([4]),
        "table": MultiDiscrete([[3, 2], [2, 4]]),
        "started": MultiDiscrete([3, 2], start=[-1, 5]),
        "int32": MultiDiscrete([3, 2], dtype=np.int32),
        "numbers": Box(np.float32([-2.0, 0.0, -np.inf]), np.float32([2.0, 10.0, np.inf])),
        "number": Box(-2.0, 2.0, (), np.float32),
        "matrix": Box(-1.0, 3.0, (2, 2), np.float64),
        "positive": Box(0.0, np.inf, (1,), np.float32),
        "endless": Box(-np.finfo(np.float32).max, np.finfo(np.float32).max, (2,), np.float32),
    }

    def __init__(self, space="two", n=5):
        super().__init__(n)
        self.action_space = self.ACTIONS[space]
        self.observation_space = Box(-np.inf, np.inf, (int(np.prod(self.action_space.shape)),), np.float64)
        self.last_action = np.zeros(self.observation_space.shape)

    def observation(self):
        return self.last_action

    def step(self, action):
        if action not in self.action_space or np.asarray(action).dtype != self.action_space.dtype:
            raise RuntimeError(f"{action!r} is not in {self.action_space}")
        self.last_action = np.asarray(action, np.float64).flatten()
        return super().step(action)

    def get_state(self):
        state = {"step_number": self.step_number, "last_action": self.last_action}
        return state | {"generator": self.np_random.bit_generator.state}

    def set_state(self, state):
        self.step_number, self.last_action = state["step_number"], state["last_action"]
        self.np_random.bit_generator.state = state["generator"]


class Mirror(Acts):
    """As Acts, but choices are observed as a MultiDiscrete, and numbers in a Dict beside the number of the step."""

    def __init__(self, space="table", n=5):
        super().__init__(space, n)
        if isinstance(self.action_space, MultiDiscrete):
            self.observation_space = self.action_space
        else:
            self.observation_space = Dict(numbers=self.observation_space, step=Discrete(n + 1))

    def observation(self):
        if isinstance(self.action_space, MultiDiscrete):
            return self.last_action.reshape(self.action_space.shape).astype(np.int64)
        return {"numbers": self.last_action, "step": self.step_number}


def _register(env_id, entry_point, **kwargs):
    # The module may be imported under two names, with and without "tests.".
    if env_id not in gymnasium.registry:
        gymnasium.register(env_id, entry_point, kwargs=kwargs)


_CLASSES = (
    *(Fixed, Trunc, Both, Horizon, Boom, Exit, Threaded, HangOnReset),
    *(Hang, NaNReward, Lives, Counter, RandStart, Constant),
)
for _class in (*_CLASSES, Acts, Mirror, Echo, Savable, Parts, OddSpaces, Vanish, Torch, Unevaluated):
    _register(f"{_class.__name__}-v0", _class)
for _class in (Fixed, Trunc, Both):
    _register(f"{_class.__name__}5-v0", _class, n=5)
_register("Boom50-v0", Boom, k=50)
