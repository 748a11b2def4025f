"""Writes a network as an ONNX file: one step of the agent, for programs without PyTorch."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from monobeast import trees
from monobeast.environments import Spaces
from monobeast.errors import missing_package
from monobeast.files import replaced
from monobeast.networks import AgentInput, AgentNetwork, Network
from monobeast.rollouts import allocate

_STATE = ("hidden", "cell")
_NUM_COLUMNS = 2  # of the example; 1 would be taken for a number that never changes


class _Step(nn.Module):
    """The network, called with tensors only."""

    def __init__(self, network: Network, example: AgentInput) -> None:
        super().__init__()
        self.network = network
        self._form = tuple(example)
        self._num_inputs = len(trees.leaves(self._form))

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        inputs, state = tensors[: self._num_inputs], tensors[self._num_inputs :]
        output = self.network(AgentInput(*trees.with_leaves(self._form, inputs)), state)
        return (output.policy_params, output.baseline, *output.core_state)


def require_writer(path: str) -> None:
    """Raises ValueError, with the command that installs them, unless the packages that write ONNX files are there."""
    try:
        import onnxscript  # noqa: F401  # torch's exporter needs it, and says so late
    except ImportError as error:
        raise missing_package(f"--onnx {path}", "onnxscript", error, "onnx onnxscript") from None


def write(path: Path, network: Network, spaces: Spaces, description: dict[str, str]) -> None:
    """Writes one step of the network, T = 1, for any number of columns B.

    Inputs are the fields of `AgentInput` by name, [1, B, ...], and with LSTM `hidden` and `cell`, each [L, B, H], zeros
    before the first step. An observation of several parts has one input per part, such as `observation['camera']`.
    Outputs are `policy_logits` [1, B, A], `baseline` [1, B], and `next_hidden` and `next_cell`. If actions are real
    numbers, `policy_params` [1, B, 2 D] replace the logits. Observations and actions have the form of `Spaces`. The
    state of the user's own network is `state_0`, `state_1` and so on, with outputs `next_state_0` and so on; its
    `initial_state` gives the values before the first step.

    Args:
        path: Of the file; an existing file is replaced.
        network: On the CPU, in float32.
        spaces: Of the network's environment.
        description: Texts for the file's metadata.

    Raises:
        OSError: it cannot be written.
    """
    state = network.initial_state(_NUM_COLUMNS)
    numbered = [f"state_{i}" for i in range(len(state))]
    state_names = _STATE[: len(state)] if isinstance(network, AgentNetwork) else numbered
    inputs = _make_inputs(spaces)
    named = trees.name_fields(inputs)
    example = (*named.values(), *state)
    outputs = (network.distribution.params_name, "baseline")
    columns = torch.export.Dim("batch", min=1)
    shapes = (tuple({1: columns} for _ in example),)  # what is `*tensors` in the signature is one
    with _quiet():
        program = torch.onnx.export(
            _Step(network, inputs).eval(),
            example,
            dynamo=True,
            verbose=False,
            dynamic_shapes=shapes,
            input_names=[*named, *state_names],
            output_names=[*outputs, *(f"next_{name}" for name in state_names)],
        )
    assert program is not None
    program.model.metadata_props.update(description)
    with replaced(path) as partial:
        program.save(str(partial), external_data=False)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hides the exporters' warnings about unneeded packages and steps that were not simplified."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _make_inputs(spaces: Spaces) -> AgentInput:
    """Zero tensors of the right types and shapes."""
    rollout = allocate(1, _NUM_COLUMNS, spaces.observation, spaces.action)
    return AgentInput(*trees.map_leaves(lambda tensor: tensor[:1].zero_(), rollout.inputs))
