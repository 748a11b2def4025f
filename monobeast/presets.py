"""Presets: named sets of settings, from which `Config` fills those left open."""

from typing import Any

# Unlike the paper and TorchBeast: small batches, so more updates per step; a light value loss; and an entropy cost that
# falls to 0. Early exploration finds how to return a ball that comes back; late in training random actions no longer
# miss one (docs/results.md). Unlike TorchBeast, the average of squared gradients starts at 1.
_ATARI: dict[str, Any] = {
    "unroll_length": 10,
    "batch_size": 8,
    "optimizer": "rmsprop",
    "learning_rate": 7e-4,
    "alpha": 0.99,
    "momentum": 0.0,
    "epsilon": 8e-4,
    "rmsprop_start": 1.0,
    "grad_norm_clipping": 40.0,
    "discounting": 0.99,
    "baseline_cost": 0.25,
    "entropy_cost": 0.01,
    "entropy_cost_end": 0.0,
}

PRESETS: dict[str, dict[str, Any]] = {
    "atari": _ATARI,
    # With steps as large as the other presets', the LSTM's gates saturate before V is near its level, and neither
    # learns after that (docs/results.md).
    "atari_lstm": _ATARI | {"learning_rate": 3e-4, "epsilon": 0.01},
    # For small tasks with float observations: as many updates, but larger steps.
    "classic": _ATARI | {"learning_rate": 1e-3},
    # Table G.1 of arXiv 1802.01561; the optimizer starts as in TensorFlow.
    "paper": _ATARI
    | {"envs_per_actor": 1, "unroll_length": 20, "batch_size": 32}
    | {"learning_rate": 6e-4, "epsilon": 0.01, "baseline_cost": 0.5, "entropy_cost_end": None},
    # Defaults of TorchBeast's MonoBeast.
    "torchbeast": _ATARI
    | {"envs_per_actor": 1, "unroll_length": 80, "batch_size": 8}
    | {"learning_rate": 4.8e-4, "epsilon": 0.01, "rmsprop_start": 0.0, "baseline_cost": 0.5}
    | {"entropy_cost": 6e-4, "entropy_cost_end": None},
}
