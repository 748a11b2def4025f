"""This trainer configured like MonoBeast's defaults, so that anybody can reproduce the speed comparison."""

import importlib.util
import json
from typing import Any

from monobeast import environments
from monobeast.benchmarks import python_atari
from monobeast.config import Config
from monobeast.environments.atari import ATARI_ONLY, is_atari
from monobeast.environments.registry import find_spec
from monobeast.errors import missing_package

# TorchBeast's defaults, but for network, unroll and batch, which must be the same for a ratio to mean anything. The
# threads of the learner are those that its four actors leave.
_MONOBEAST: dict[str, Any] = {
    "num_actors": 4,
    "envs_per_actor": 1,
    "num_buffers": 8,
    "num_learner_threads": None,
    "precision": "float32",
    "memory_format": "contiguous",
}


def like_monobeast(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings to compare with, for the given `settings`.

    Raises:
        ValueError: no such environment; OpenCV is missing; a setting that Gymnasium's wrappers do not support.
    """
    config = environments.resolve(Config(**settings))
    settings = settings | _MONOBEAST | {"preset": config.preset}
    if not is_atari(find_spec(config.env)):
        return settings  # Gymnasium's own environments are stepped in Python in either case
    if importlib.util.find_spec("cv2") is None:
        user = "Gymnasium's wrappers for Atari use it"
        raise missing_package("--baseline monobeast", "OpenCV", user, "opencv-python-headless")
    if config.env_kwargs != "{}":
        raise ValueError(f"--env_kwargs {config.env_kwargs}: not with --baseline monobeast, whose wrappers have none")
    arguments = {"game": config.env} | {name: getattr(config, name) for name in ATARI_ONLY}
    own = {name: value for name, value in settings.items() if name not in ATARI_ONLY}
    return own | {
        "env": python_atari.ENV,
        "env_kwargs": json.dumps(arguments),
        "reward_clipping": config.reward_clipping,
        "life_loss_terminal": config.life_loss_terminal,
    }
