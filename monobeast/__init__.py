"""monobeast: IMPALA agents (arXiv 1802.01561) on one workstation, in Python and PyTorch.

Axis letters in shape comments and docstrings, defined here once:

    T  steps of a rollout (`--unroll_length`); T+1 observations, x_0 to x_T
    B  trajectories, the columns of a batch (`--batch_size`)
    E  environments of one actor (`--envs_per_actor`), the columns of a slot
    A  actions
    P  parameters of the distribution of actions; for A discrete actions, A logits
    L  layers of the LSTM
    H  units of one layer of the LSTM

Time is axis 0 and batch is axis 1, everywhere.

Importing the package imports neither torch nor gymnasium: `monobeast.train`, `monobeast.Config` and
`monobeast.check_vtrace` are imported on first access, and so is the module `monobeast.vtrace`.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

from monobeast.registration import register_environments

if TYPE_CHECKING:
    from monobeast.config import Config
    from monobeast.training import train
    from monobeast.vtrace_check import check_vtrace

__all__ = ["Config", "check_vtrace", "register_environments", "train"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "train":
        from monobeast.training import train

        return train
    if name == "Config":
        from monobeast.config import Config

        return Config
    if name == "check_vtrace":
        from monobeast.vtrace_check import check_vtrace

        return check_vtrace
    if name == "vtrace":
        return importlib.import_module("monobeast.vtrace")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# So that `import gymnasium, monobeast` registers the environment, as does "monobeast:monobeast/Catch-v0", and yet the
# command line need not wait for gymnasium: a Ctrl-C within its import would end in a traceback.
if "gymnasium.envs" in sys.modules:
    register_environments()
