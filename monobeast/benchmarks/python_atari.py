"""Atari through Gymnasium's Python wrappers, as in MonoBeast, for comparison with ale-py's native vector environment.

Importing this module registers the environment, for `--env monobeast.benchmarks.python_atari:monobeast/PythonAtari-v0`.
Only these wrappers need OpenCV.
"""

import gymnasium
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

ID = "monobeast/PythonAtari-v0"
ENV = f"{__name__}:{ID}"  # for --env


def make(
    game: str,
    frame_skip: int,
    noop_max: int,
    sticky_actions: float,
    full_action_space: bool,
    max_episode_frames: int,
) -> gymnasium.Env:
    """One game: 84x84 gray, maximum over two frames, four frames stacked.

    Args:
        game: Its id, such as ALE/Pong-v5; the other arguments are the `Config` settings of the same names.
    """
    env = gymnasium.make(
        game,
        frameskip=1,
        repeat_action_probability=sticky_actions,
        full_action_space=full_action_space,
        max_num_frames_per_episode=max_episode_frames,
        disable_env_checker=True,
    )
    env = AtariPreprocessing(env, noop_max=noop_max, frame_skip=frame_skip)
    return FrameStackObservation(env, 4)


# Without Gymnasium's checks around it: what is compared with should be no slower than it must.
gymnasium.register(ID, entry_point=f"{__name__}:make", disable_env_checker=True, order_enforce=False)
