"""A checkpoint of TorchBeast's becomes a run whose agent is the same function, and learns on as there."""

import dataclasses
import json

import pytest
import torch
from gymnasium.spaces import Discrete
from torchbeast_files import FLAGS, NUM_ACTIONS, gradients_of, make_checkpoint, step_with

from monobeast.runs import checkpoint, torchbeast_checkpoint
from monobeast.__main__ import run_command
from monobeast.config import Config
from monobeast.networks import AgentInput, make_network
from monobeast.policy import for_acting
from monobeast.runs.torchbeast_checkpoint import convert_weights
from network_inputs import IMAGE, make, random_inputs, unroll

# Another order of the same sums, in float32, through up to six layers.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}
WITH_AND_WITHOUT_LSTM = pytest.mark.parametrize("use_lstm", [False, True])


def write(folder, content, **options):
    torch.save(content, folder / "model.tar", **options)
    return folder / "model.tar"


def imported(tmp_path, content, **options):
    """The checkpoint of the run that is made of `content`."""
    path = write(tmp_path, content, **options)
    assert run_command(["import-torchbeast", str(path), "--xpid", "example", "--savedir", str(tmp_path / "runs")]) == 0
    return checkpoint.load(tmp_path / "runs" / "example")


def network_of(saved):
    import numpy as np
    from gymnasium.spaces import Box

    space = Box(0, 255, (4, 84, 84), np.uint8)
    network = make_network(space, Discrete(NUM_ACTIONS), saved["config"]["network"], saved["config"]["use_lstm"])
    network.load_state_dict(saved["learner"]["network"])
    return network


def random_steps(num_steps=5, num_columns=3):
    """Steps of which some begin an episode, and what TorchBeast shows there: action 0 and no reward."""
    generator = torch.Generator().manual_seed(2)
    shape = (num_steps, num_columns)
    is_first = torch.zeros(shape, dtype=torch.bool)
    is_first[0, 0] = is_first[2, 1] = is_first[4, 2] = True
    return AgentInput(
        observation=torch.randint(256, (*shape, 4, 84, 84), generator=generator, dtype=torch.uint8),
        is_first=is_first,
        last_action=torch.randint(NUM_ACTIONS, shape, generator=generator).masked_fill(is_first, 0),
        last_reward=(3 * torch.randn(shape, generator=generator)).masked_fill(is_first, 0),
    )


@WITH_AND_WITHOUT_LSTM
def test_logits_baseline_and_state_are_those_of_torchbeast(tmp_path, use_lstm):
    theirs, _, content = make_checkpoint(use_lstm)
    inputs = random_steps()
    state = tuple(torch.randn(2, 3, 512 + 1 + NUM_ACTIONS) for _ in "hc") if use_lstm else ()

    found = unroll(network_of(imported(tmp_path, content)), inputs, state)

    with torch.no_grad():
        logits, baseline, state = theirs(
            inputs.observation, inputs.last_reward, inputs.is_first, inputs.last_action, state
        )
    torch.testing.assert_close(found.policy_params, logits, **TOLERANCE)
    torch.testing.assert_close(found.baseline, baseline, **TOLERANCE)
    torch.testing.assert_close(found.core_state, tuple(state), **TOLERANCE)
    assert logits.std() > 0.01  # they do depend on what is seen


@pytest.mark.parametrize(
    ("use_lstm", "momentum"),
    [(False, 0.5), (True, 0.0), *(pytest.param(*case, marks=pytest.mark.slow) for case in [(False, 0.0), (True, 0.5)])],
)
def test_the_next_update_is_the_one_that_torchbeast_would_make(tmp_path, use_lstm, momentum):
    theirs, their_optimizer, content = make_checkpoint(use_lstm, momentum=momentum)
    saved = imported(tmp_path, content)
    ours = network_of(saved)
    our_optimizer = torch.optim.RMSprop(ours.parameters())
    our_optimizer.load_state_dict(saved["learner"]["optimizer"])
    our_optimizer.param_groups[0]["lr"] = their_optimizer.param_groups[0]["lr"]
    for name, gradient in convert_weights(gradients_of(theirs, seed=9)).items():
        ours.get_parameter(name).grad = gradient

    step_with(theirs, their_optimizer, seed=9)
    our_optimizer.step()

    # Bit for bit: nothing is computed but what each weight's own history says.
    for name, expected in convert_weights(theirs.state_dict()).items():
        assert torch.equal(ours.get_parameter(name), expected), name


def test_settings_and_counts_are_taken_over(tmp_path):
    _, _, content = make_checkpoint()

    saved = imported(tmp_path, content)

    same = "env num_actors num_buffers batch_size unroll_length total_steps discounting learning_rate alpha".split()
    same += "momentum epsilon entropy_cost baseline_cost reward_clipping".split()
    assert {name: saved["config"][name] for name in same} == {name: FLAGS[name] for name in same}
    assert saved["config"]["envs_per_actor"] == 1 and saved["config"]["num_learner_threads"] is None
    assert (saved["learner"]["num_updates"], saved["learner"]["step"]) == (2, 2 * 80 * 8)


def test_the_run_says_what_it_is(tmp_path, capsys):
    _, _, content = make_checkpoint()

    imported(tmp_path, content)

    assert "PongNoFrameskip-v4, without LSTM, at step 1,280 of 30,000" in capsys.readouterr().out
    meta = json.loads((tmp_path / "runs" / "example" / "meta.json").read_text())
    assert (meta["state"], meta["step"]) == ("stopped", 1280)


def test_a_file_of_an_old_pytorch_is_read(tmp_path):
    _, _, content = make_checkpoint()

    saved = imported(tmp_path, content, _use_new_zipfile_serialization=False)

    assert saved["learner"]["step"] == 1280


def test_a_file_without_optimizer_says_that_it_begins_anew(tmp_path, capsys):
    _, _, content = make_checkpoint()
    del content["optimizer_state_dict"], content["scheduler_state_dict"]

    saved = imported(tmp_path, content)

    assert "with --resume it starts afresh" in capsys.readouterr().out
    assert saved["learner"]["step"] == 0


def refused(tmp_path, capsys, path):
    arguments = ["import-torchbeast", str(path), "--xpid", "example", "--savedir", str(tmp_path / "runs")]
    exit_code, errors = run_command(arguments), capsys.readouterr().err
    assert exit_code == 2 and errors.count("\n") == 1
    assert not (tmp_path / "runs").exists()
    return errors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"flags": None}, "is no checkpoint of MonoBeast: it lacks model_state_dict, or flags"),
        ({"model_state_dict": {"feat_convs.0.0.weight": torch.zeros(1)}}, "is not of MonoBeast's AtariNet"),
        ({"flags": FLAGS | {"env": "NoGame-v4"}}, "no such environment"),
        ({"flags": FLAGS | {"env": "antigravity:Id-v0"}}, "--env antigravity:Id-v0 is code that is not imported for"),
        (
            {"flags": FLAGS | {"env": "BreakoutNoFrameskip-v4"}},
            "policy.weight is [6, 519] in the saved weights, [4, 517] in this network",
        ),
        ({"flags": FLAGS | {"discounting": 2.0}}, "--discounting 2.0: must be at least 0 and at most 1"),
    ],
)
def test_what_does_not_fit_is_refused_by_a_line_that_says_why(tmp_path, capsys, change, message):
    _, _, content = make_checkpoint(num_updates=0)

    errors = refused(tmp_path, capsys, write(tmp_path, content | change))

    assert message in errors and str(tmp_path / "model.tar") in errors


def test_a_file_that_is_none_is_refused(tmp_path, capsys):
    (tmp_path / "model.tar").write_text("nothing")

    assert "model.tar cannot be read" in refused(tmp_path, capsys, tmp_path / "model.tar")
    assert "no checkpoint at" in refused(tmp_path, capsys, tmp_path / "none.tar")


def test_code_in_a_file_is_not_run(tmp_path, capsys):
    class Bomb:
        def __reduce__(self):
            return (print, ("boom",))

    errors = refused(tmp_path, capsys, write(tmp_path, {"model_state_dict": {}, "flags": Bomb()}))

    assert "cannot be read" in errors and "boom" not in errors


def test_a_name_in_use_is_refused(tmp_path, capsys):
    _, _, content = make_checkpoint(num_updates=0)
    imported(tmp_path, content)

    arguments = ["import-torchbeast", str(tmp_path / "model.tar"), "--xpid", "example"]
    assert run_command([*arguments, "--savedir", str(tmp_path / "runs")]) == 2
    assert "--xpid example: in use" in capsys.readouterr().err


@pytest.mark.slow
@WITH_AND_WITHOUT_LSTM
def test_it_is_played_and_trained_on(tmp_path, capsys, use_lstm):
    _, _, content = make_checkpoint(use_lstm, unroll_length=10, batch_size=2)
    imported(tmp_path, content)
    run = ["--xpid", "example", "--savedir", str(tmp_path / "runs")]

    played = run_command(["test", *run, "--num_episodes", "1", "--max_episode_steps", "20"])
    small = ["--num_actors", "0", "--num_learner_threads", "1", "--total_steps", "80"]
    trained = run_command(["train", "--resume", *run, *small])

    assert (played, trained) == (0, 0)
    meta = json.loads((tmp_path / "runs" / "example" / "meta.json").read_text())
    assert meta["state"] == "complete" and meta["resumed_from_step"] == 40 and meta["step"] == 80


# The network itself, on small images.


def test_images_keep_their_mean():
    torso = make(IMAGE, "torchbeast").torso
    images = torch.randint(0, 100, (3, *IMAGE.shape), dtype=torch.uint8)

    assert not torch.allclose(torso(images), torso(images + 100), rtol=0.1)


@WITH_AND_WITHOUT_LSTM
def test_nothing_passes_from_one_episode_to_the_next(use_lstm):
    network, inputs = make(IMAGE, "torchbeast", use_lstm), random_inputs(IMAGE)
    inputs.is_first[3] = True
    inputs.last_action[3], inputs.last_reward[3] = -1, torch.nan  # as in a store that nobody wrote

    whole, after = unroll(network, inputs), unroll(network, inputs, steps=slice(3, None))

    torch.testing.assert_close(whole.policy_params[3:], after.policy_params)
    torch.testing.assert_close(whole.core_state, after.core_state)


def test_step_by_step_is_the_same_as_all_at_once():
    network, inputs = make(IMAGE, "torchbeast", True), random_inputs(IMAGE)
    state, logits = network.initial_state(2), []
    assert [tuple(part.shape) for part in state] == [(2, 2, 512 + 5 + 1)] * 2

    for t in range(8):
        output = unroll(network, inputs, state, slice(t, t + 1))
        state = output.core_state
        logits.append(output.policy_params)

    torch.testing.assert_close(torch.cat(logits), unroll(network, inputs).policy_params)


@WITH_AND_WITHOUT_LSTM
def test_a_gradient_reaches_every_parameter(use_lstm):
    network, inputs = make(IMAGE, "torchbeast", use_lstm), random_inputs(IMAGE)

    output = network(inputs, network.initial_state(2))
    (output.policy_params.square().sum() + output.baseline.square().sum()).backward()

    assert [name for name, parameter in network.named_parameters() if not parameter.grad.any()] == []


def test_it_acts_in_bfloat16_as_the_others_do():
    exact, inputs = make(IMAGE, "torchbeast", True), random_inputs(IMAGE)
    rounded = make_network(IMAGE, Discrete(5), "torchbeast", True, "bfloat16")
    rounded.load_state_dict(exact.state_dict())

    for network in (rounded, for_acting(rounded)):
        found = unroll(network, inputs)
        assert {tensor.dtype for tensor in (*found[:2], *found.core_state)} == {torch.float32}
        torch.testing.assert_close(found.baseline, unroll(exact, inputs).baseline, rtol=0.05, atol=0.05)


def test_small_images_are_refused():
    from gymnasium.spaces import Box

    with pytest.raises(ValueError, match="--network torchbeast: observations of shape .* need 36x36"):
        make(Box(0, 255, (4, 20, 20), "uint8"), "torchbeast")


def test_every_flag_that_is_taken_over_is_one_of_ours():
    assert set(torchbeast_checkpoint._FLAGS) <= {setting.name for setting in dataclasses.fields(Config)}
