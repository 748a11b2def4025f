"""The network of a run in files of other programs gives the same logits."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from network_inputs import unroll
from saved_runs import save_run

from monobeast import environments, player
from monobeast.__main__ import run_command
from monobeast.networks import AgentInput
from monobeast.runs import checkpoint

# Another order of the same sums, in float32.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


def load(folder):
    content = checkpoint.load(folder)
    # The file is in float32 whatever the run multiplied in: so must be what it is compared with.
    config = dataclasses.replace(checkpoint.read_config(content, folder), precision="float32")
    spaces = environments.check(config)
    return player.load_network(content, folder, config, spaces).eval(), spaces


def random_inputs(spaces, num_columns):
    generator = torch.Generator().manual_seed(1)
    samples = np.stack([spaces.observation.sample() for _ in range(num_columns)])[None]
    shape = (1, num_columns)
    is_first = torch.zeros(shape, dtype=torch.bool)
    is_first[0, 0] = True
    last_action = torch.randint(int(spaces.action.n), shape, generator=generator)
    return AgentInput(torch.from_numpy(samples), is_first, last_action, torch.randn(shape, generator=generator))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "settings"),
    [
        ("CartPole-v1", {}),
        ("CartPole-v1", {"use_lstm": True, "precision": "bfloat16"}),
        ("monobeast/Memory-v0", {"use_lstm": True}),
        ("ALE/Pong-v5", {"use_lstm": True, "network": "torchbeast"}),
        ("ALE/Pong-v5", {"network": "deep"}),
    ],
)
def test_an_onnx_file_gives_the_same_logits_for_any_number_of_columns(tmp_path, env, settings):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime runs the file; it is in the extra test")
    pytest.importorskip("onnxscript", reason="onnxscript writes the file; it is in the extra onnx")
    folder = save_run(tmp_path, env=env, **settings)

    assert run_command(["export", str(folder), "--onnx", str(tmp_path / "network.onnx")]) == 0

    session = onnxruntime.InferenceSession(tmp_path / "network.onnx", providers=["CPUExecutionProvider"])
    network, spaces = load(folder)
    for num_columns in (1, 3):
        inputs = random_inputs(spaces, num_columns)
        state = tuple(torch.randn_like(part) for part in network.initial_state(num_columns))
        expected = unroll(network, inputs, state)
        names = [each.name for each in session.get_inputs()]
        assert names == [*AgentInput._fields, *("hidden", "cell")[: len(state)]]
        given = dict(zip(names, (tensor.numpy() for tensor in (*inputs, *state)), strict=True))
        found = [torch.from_numpy(output) for output in session.run(None, given)]
        wanted = [expected.policy_params, expected.baseline, *expected.core_state]
        torch.testing.assert_close(found, wanted, **TOLERANCE)
    assert session.get_modelmeta().custom_metadata_map == {"env": env, "step": "0", "run": "example"}


def test_a_state_dict_holds_the_weights_and_nothing_else(tmp_path):
    folder = save_run(tmp_path, env="monobeast/Catch-v0")

    assert run_command(["export", "example", "--savedir", str(tmp_path), "--state_dict", str(tmp_path / "w.pt")]) == 0

    weights, (network, _) = torch.load(tmp_path / "w.pt", weights_only=True), load(folder)
    assert list(weights) == list(network.state_dict())
    assert all(torch.equal(weights[name], weight) for name, weight in network.state_dict().items())


def test_a_full_disk_leaves_the_file_that_was_there(tmp_path, capsys, monkeypatch):
    save_run(tmp_path, env="monobeast/Catch-v0")
    (tmp_path / "w.pt").write_text("before")

    def write_a_part(path, content):
        path.write_text("a part")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", write_a_part)

    assert run_command(["export", "example", "--savedir", str(tmp_path), "--state_dict", str(tmp_path / "w.pt")]) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert (tmp_path / "w.pt").read_text() == "before"
    assert {path.name for path in tmp_path.iterdir()} == {"example", "w.pt"}


def test_without_the_package_the_line_that_installs_it_is_said(tmp_path, capsys, monkeypatch):
    folder = save_run(tmp_path, env="monobeast/Catch-v0")
    monkeypatch.setitem(__import__("sys").modules, "onnxscript", None)

    assert run_command(["export", str(folder), "--onnx", str(tmp_path / "network.onnx")]) == 2

    errors = capsys.readouterr().err
    assert "--onnx" in errors and errors.endswith("python -m pip install onnx onnxscript\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["example"], "--onnx FILE, --state_dict FILE: at least one must be given"),
        (["none", "--onnx", "a.onnx"], "run none: no such folder"),
        (["example", "--onnx", "one", "--state_dict", "./one"], "--onnx and --state_dict ./one: must be two files"),
        (["example", "--state_dict", ""], "--state_dict : must be a file in a folder that"),
        (["example", "--onnx", "/none/a.onnx"], "--onnx /none/a.onnx: must be a file in a folder that"),
    ],
)
def test_what_cannot_be_exported_is_refused(tmp_path, capsys, arguments, message):
    save_run(tmp_path, env="monobeast/Catch-v0")

    assert run_command(["export", *arguments, "--savedir", str(tmp_path)]) == 2
    errors = capsys.readouterr().err
    assert message in errors and errors.count("\n") == 1
