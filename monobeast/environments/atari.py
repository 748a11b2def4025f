"""Atari games, through ale-py's vector environment, which is written in C++."""

from typing import Any

from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv

from monobeast.config import Config
from monobeast.environments.screen import EMULATOR_FRAMES_PER_SECOND, WithScreen

_ENTRY_POINT = "ale_py.env:AtariEnv"

# Settings that only ALE knows, with the values that are also true of an environment without them.
ATARI_ONLY = {
    "frame_skip": (1,),
    "noop_max": (0,),
    "sticky_actions": (0.0,),
    "full_action_space": (False,),
    "max_episode_frames": (),
}

# Arguments of AtariVectorEnv that are not for --env_kwargs, and where their values come from instead.
_RESERVED = {
    "game": "use --env",
    "num_envs": "use --envs_per_actor",
    "render_mode": "use --render or --video of test",
    "batch_size": "use --envs_per_actor; all environments of an actor are stepped together",
    "num_threads": "use --num_actors; an actor has one thread",
    "autoreset_mode": "episodes are told apart by NEXT_STEP autoreset",
    "max_num_frames_per_episode": "use --max_episode_frames",
    "repeat_action_probability": "use --sticky_actions",
    "full_action_space": "use --full_action_space",
    "frameskip": "use --frame_skip",
    "noop_max": "use --noop_max",
    "episodic_life": "use --life_loss_terminal",
    "life_loss_info": "use --life_loss_terminal",
    "reward_clipping": "use --reward_clipping",
}
_SIZES = ("img_height", "img_width", "stack_num")


def is_atari(spec: EnvSpec) -> bool:
    """Whether the id is a game of ale-py, without additional wrappers of its own."""
    return spec.entry_point == _ENTRY_POINT and not spec.additional_wrappers and spec.max_episode_steps is None


def check_kwargs(env_kwargs: dict[str, Any]) -> None:
    """Raises ValueError, naming the flag to use instead, if `--env_kwargs` sets a reserved argument."""
    for name, value in env_kwargs.items():
        if name in _RESERVED:
            raise ValueError(f"--env_kwargs {name}: not for Atari; {_RESERVED[name]}")
        # ALE hangs for ever in reset() when a frame has no pixels (seen with ale-py 0.12.1).
        if name in _SIZES and (not isinstance(value, int) or value < 1):
            raise ValueError(f"--env_kwargs {name} {value!r}: must be an int, at least 1")


def make_native(config: Config, spec: EnvSpec, num_envs: int, env_kwargs: dict[str, Any]) -> VectorEnv:
    """`num_envs` games, preprocessed as in the paper: 84x84 gray, maximum over two frames, four frames stacked.

    All arguments are passed explicitly, since the defaults would clip the reported returns and use all cores.

    Args:
        config: resolved.
        spec: of the id; its kwargs name the game. Its frame skip is replaced, so that frames are not skipped twice.
        num_envs: E.
        env_kwargs: checked by `check_kwargs`.
    """
    from ale_py.vector_env import AtariVectorEnv

    arguments = {
        "thread_affinity_offset": -1,
        "continuous": False,
        "continuous_action_threshold": 0.5,
        "img_height": 84,
        "img_width": 84,
        "grayscale": True,
        "stack_num": 4,
        "maxpool": True,
        "use_fire_reset": True,
        **{name: value for name, value in spec.kwargs.items() if name not in _RESERVED},
        **env_kwargs,
    }
    return AtariVectorEnv(
        game=spec.kwargs["game"],
        num_envs=num_envs,
        batch_size=num_envs,
        num_threads=1,
        autoreset_mode=AutoresetMode.NEXT_STEP,
        max_num_frames_per_episode=config.max_episode_frames,
        repeat_action_probability=config.sticky_actions,
        full_action_space=config.full_action_space,
        frameskip=config.frame_skip,
        # ALE draws from 0 to noop_max - 1 no-ops; the first of them is the FIRE in games that start by it.
        noop_max=config.noop_max + 1,
        episodic_life=False,
        life_loss_info=False,
        reward_clipping=False,
        **arguments,
    )


def make_with_screen(config: Config, spec: EnvSpec, num_envs: int, env_kwargs: dict[str, Any]) -> VectorEnv:
    """Like `make_native`; `render` returns the games' screens in their original size and colors."""
    height, width = _screen_size(spec.kwargs["game"])
    in_color = {"img_height": height, "img_width": width, "grayscale": False, "stack_num": 1}
    twin = make_native(config, spec, num_envs, env_kwargs | in_color)
    frames_per_second = EMULATOR_FRAMES_PER_SECOND / config.frame_skip
    return WithScreen(make_native(config, spec, num_envs, env_kwargs), twin, frames_per_second)


def _screen_size(game: str) -> tuple[int, int]:
    """Height and width; for most games 210 and 160."""
    import ale_py
    from ale_py import roms

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # else it introduces itself
    ale = ale_py.ALEInterface()
    ale.loadROM(str(roms.get_rom_path(game)))
    return ale.getScreenDims()
