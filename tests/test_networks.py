"""What the network makes of time, of last action and last reward, and what it starts from."""

import copy

import pytest
import torch
from gymnasium.spaces import Discrete
from network_inputs import ACTIONS, IMAGE, NUM_ACTIONS, VECTOR, make, random_inputs, random_state, seen_by, unroll
from torch import nn

from monobeast.networks import agent, make_network
from monobeast.networks.agent import LSTM

# Kernels add up in another order for another number of rows.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
EVERY_NETWORK = pytest.mark.parametrize(
    ("space", "network"), [(IMAGE, "shallow"), (IMAGE, "deep"), (VECTOR, "mlp"), (Discrete(6), "mlp")]
)
WITH_AND_WITHOUT_LSTM = pytest.mark.parametrize("use_lstm", [False, True])


@EVERY_NETWORK
@WITH_AND_WITHOUT_LSTM
def test_an_unroll_equals_single_steps(space, network, use_lstm):
    network = make(space, network, use_lstm)
    inputs = random_inputs(space)
    inputs.is_first[0, 1] = inputs.is_first[3, 0] = inputs.is_first[7, 1] = True
    state = random_state() if use_lstm else ()

    whole = unroll(network, inputs, state)

    for t in range(8):
        step = unroll(network, inputs, state, steps=slice(t, t + 1))
        state = step.core_state
        torch.testing.assert_close(step.policy_params[0], whole.policy_params[t], **TOLERANCE)
        torch.testing.assert_close(step.baseline[0], whole.baseline[t], **TOLERANCE)
    torch.testing.assert_close(state, whole.core_state, **TOLERANCE)


def test_the_core_state_carries_on_from_unroll_to_unroll():
    network, inputs = make(use_lstm=True), random_inputs()

    whole = unroll(network, inputs)
    front = unroll(network, inputs, steps=slice(0, 4))
    back = unroll(network, inputs, front.core_state, steps=slice(4, 8))

    torch.testing.assert_close(torch.cat([front.baseline, back.baseline]), whole.baseline, **TOLERANCE)
    torch.testing.assert_close(back.core_state, whole.core_state, **TOLERANCE)
    forgotten = unroll(network, inputs, steps=slice(4, 8))
    assert not torch.allclose(forgotten.baseline, whole.baseline[4:], **TOLERANCE)


def test_an_episode_begins_with_a_zero_state_and_leaves_the_other_columns_alone():
    network, inputs = make(use_lstm=True), random_inputs()
    without = unroll(network, inputs, random_state())
    inputs.is_first[3, 0] = True

    output = unroll(network, inputs, random_state())

    fresh = unroll(network, inputs, steps=slice(3, 8))
    torch.testing.assert_close(output.baseline[3:, 0], fresh.baseline[:, 0], **TOLERANCE)
    torch.testing.assert_close(output.policy_params[3:, 0], fresh.policy_params[:, 0], **TOLERANCE)
    torch.testing.assert_close(output.baseline[:3, 0], without.baseline[:3, 0], **TOLERANCE)
    torch.testing.assert_close(output.baseline[:, 1], without.baseline[:, 1], **TOLERANCE)
    assert not torch.allclose(output.baseline[3:, 0], without.baseline[3:, 0], **TOLERANCE)


def test_a_state_that_nobody_wrote_does_not_reach_an_episode():
    network, inputs = make(use_lstm=True), random_inputs()
    inputs.is_first[0] = True

    output = unroll(network, inputs, tuple(torch.full_like(part, torch.nan) for part in random_state()))

    torch.testing.assert_close(output, unroll(network, inputs), **TOLERANCE)


def test_the_lstm_computes_what_torch_computes():
    torch.manual_seed(4)
    lstm, reference = LSTM(7, 6), nn.LSTM(7, 6)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        lstm.from_input.weight.copy_(reference.weight_ih_l0)
        lstm.from_hidden.weight.copy_(reference.weight_hh_l0)
        lstm.from_input.bias.copy_(reference.bias_ih_l0 + reference.bias_hh_l0)
    inputs = torch.randn(8, 3, 7, generator=generator)
    state = tuple(torch.randn(1, 3, 6, generator=generator) for _ in ("hidden", "cell"))

    computed = lstm(inputs, torch.zeros(8, 3, dtype=torch.bool), state)

    torch.testing.assert_close(computed, reference(inputs, state), **TOLERANCE)


def unroll_with_gradients(lstm, inputs, is_first, state, longest_by_steps):
    """All that comes out of an LSTM, and the gradient of a sum of squares by all that goes in."""
    tensors = [inputs, *state, *lstm.parameters()]
    for tensor in tensors:
        tensor.requires_grad_().grad = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agent, "_LONG_STRETCH", longest_by_steps + 1)
        outputs, state = lstm(inputs, is_first, state)
    sum(part.square().sum() for part in (outputs, *state)).backward()
    return outputs, *state, *(tensor.grad.clone() for tensor in tensors)


@pytest.mark.parametrize("has_two_biases", [False, True])
@pytest.mark.parametrize("longest_by_steps", [0, 1, 4])
@pytest.mark.parametrize("starts", [[], [(0, 0)], [(0, 1), (8, 0)], [(3, 0), (4, 1), (5, 0), (5, 1)], "all"])
def test_stretches_in_one_call_give_what_single_steps_give(starts, longest_by_steps, has_two_biases):
    torch.manual_seed(6)
    lstm = LSTM(7, 6, has_two_biases).double()
    inputs, *state = (torch.randn(*shape, dtype=torch.float64) for shape in [(9, 2, 7), (1, 2, 6), (1, 2, 6)])
    is_first = torch.full((9, 2), starts == "all")
    for t, column in starts if starts != "all" else []:
        is_first[t, column] = True

    by_steps, in_calls = (
        unroll_with_gradients(lstm, inputs, is_first, tuple(state), longest) for longest in (9, longest_by_steps)
    )

    for computed, expected in zip(in_calls, by_steps, strict=True):
        torch.testing.assert_close(computed, expected, rtol=1e-12, atol=1e-12)


def test_a_stretch_ends_where_an_episode_begins_in_any_column(monkeypatch):
    lengths = []
    monkeypatch.setattr(agent, "_LONG_STRETCH", 3)
    for name in ("_unroll_at_once", "_unroll_by_steps"):
        real = getattr(LSTM, name)
        spy = lambda lstm, inputs, *rest, real=real, name=name: (  # noqa: E731
            lengths.append((name, len(inputs))),
            real(lstm, inputs, *rest),
        )[1]
        monkeypatch.setattr(LSTM, name, spy)
    is_first = torch.zeros(12, 2, dtype=torch.bool)
    is_first[0, 0] = is_first[5, 1] = is_first[7, 0] = True

    LSTM(7, 6)(torch.randn(12, 2, 7), is_first, (torch.zeros(1, 2, 6), torch.zeros(1, 2, 6)))

    assert lengths == [("_unroll_at_once", 5), ("_unroll_by_steps", 2), ("_unroll_at_once", 5)]


def test_the_heads_see_features_and_one_hot_last_action_and_clipped_last_reward():
    network, inputs = make(), random_inputs(num_steps=1)
    inputs.last_action[0] = torch.tensor([0, 4])
    inputs.last_reward[0] = torch.tensor([-0.5, 30.0])

    seen = seen_by(network.policy, network, inputs)

    assert seen.shape == (1, 2, 256 + NUM_ACTIONS + 1)
    assert torch.equal(seen[0, :, :256], network.torso(inputs.observation[0]))
    assert seen[0, :, 256:].tolist() == [[1, 0, 0, 0, 0, -0.5], [0, 0, 0, 0, 1, 1.0]]


@WITH_AND_WITHOUT_LSTM
@pytest.mark.parametrize(("field", "value"), [("last_action", 1), ("last_reward", 0.5)])
def test_last_action_and_last_reward_each_change_the_output_but_at_the_first_step(field, value, use_lstm):
    network, inputs = make(use_lstm=use_lstm), random_inputs(num_steps=1)
    inputs.last_action[0], inputs.last_reward[0] = 0, 0.0
    inputs.is_first[0, 1] = True
    before = unroll(network, inputs)
    getattr(inputs, field)[0] = value

    after = unroll(network, inputs)

    assert (after.policy_params[0, 0] != before.policy_params[0, 0]).any()
    assert torch.equal(after.policy_params[0, 1], before.policy_params[0, 1])
    assert torch.equal(after.baseline[0, 1], before.baseline[0, 1])


def test_a_first_step_has_neither_last_action_nor_last_reward():
    network, inputs = make(), random_inputs(num_steps=1)
    inputs.is_first[0, 0] = True
    inputs.last_action[0, 0], inputs.last_reward[0, 0] = -1, torch.nan  # as in a store that nobody wrote

    seen = seen_by(network.policy, network, inputs)

    assert not seen[0, 0, 256:].any() and seen[0, 1, 256:].any()


@EVERY_NETWORK
@WITH_AND_WITHOUT_LSTM
def test_a_gradient_reaches_every_parameter(space, network, use_lstm):
    network, inputs = make(space, network, use_lstm), random_inputs(space)

    output = network(inputs, random_state() if use_lstm else ())
    (output.policy_params.square().sum() + output.baseline.square().sum()).backward()

    assert [name for name, parameter in network.named_parameters() if not parameter.grad.any()] == []


@EVERY_NETWORK
@WITH_AND_WITHOUT_LSTM
def test_an_untrained_policy_is_nearly_uniform_but_not_blind(space, network, use_lstm):
    output = unroll(make(space, network, use_lstm), random_inputs(space))

    torch.testing.assert_close(
        output.policy_params.softmax(-1), torch.full((8, 2, NUM_ACTIONS), 1 / NUM_ACTIONS), rtol=0, atol=0.02
    )
    assert output.policy_params.flatten(0, 1).std(0).min() > 1e-5


@pytest.mark.parametrize("network", ["shallow", "deep", "mlp"])
def test_untrained_features_are_of_the_size_of_one(network):
    network, inputs = make(IMAGE, network), random_inputs(IMAGE)

    features = network.torso(inputs.observation.flatten(0, 1))

    assert 0.05 < features.square().mean().sqrt() < 3


@EVERY_NETWORK
@WITH_AND_WITHOUT_LSTM
@pytest.mark.parametrize("autocast", [False, True])
def test_outputs_are_float32_and_time_comes_first(space, network, use_lstm, autocast):
    network = make(space, network, use_lstm)

    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        output = unroll(network, random_inputs(space, num_steps=3))

    tensors = (output.policy_params, output.baseline, *output.core_state)
    assert {tensor.dtype for tensor in tensors} == {torch.float32}
    state_shapes = [(1, 2, 256)] * 2 if use_lstm else []
    assert [tuple(tensor.shape) for tensor in tensors] == [(3, 2, NUM_ACTIONS), (3, 2), *state_shapes]


def test_the_initial_state_is_zero_and_empty_without_lstm():
    assert make().initial_state(3) == ()
    assert [part.tolist() for part in make(use_lstm=True).initial_state(3)] == [[[[0.0] * 256] * 3]] * 2


def test_the_lstm_starts_by_keeping_what_it_holds():
    network = make(use_lstm=True)

    assert network.lstm.from_input.bias.tolist() == [0.0] * 256 + [1.0] * 256 + [0.0] * 512


def test_a_single_action_has_no_entropy():
    inputs = random_inputs()
    inputs.last_action.fill_(0)

    logits = unroll(make(action_space=Discrete(1)), inputs).policy_params

    assert torch.distributions.Categorical(logits=logits).entropy().tolist() == [[0.0] * 2] * 8


def test_the_seed_alone_decides_the_weights():
    first, again = (make(IMAGE, "deep", True).parameters() for _ in range(2))
    other = make_network(IMAGE, ACTIONS, "deep", True).parameters()

    for weight, same, different in zip(first, again, other, strict=True):
        assert torch.equal(weight, same)
        assert weight.ndim == 1 or not torch.equal(weight, different)


@pytest.mark.parametrize("network", ["shallow", "deep"])
def test_brightness_that_all_pixels_share_makes_no_difference(network):
    torch.manual_seed(0)
    torso = make(IMAGE, network).torso
    images = torch.randint(0, 100, (3, *IMAGE.shape), dtype=torch.uint8)

    features, brighter = torso(images), torso(images + 100)

    torch.testing.assert_close(features, brighter, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(torso(torch.full_like(images, 100)), features, rtol=0.1)


@pytest.mark.parametrize("network", ["shallow", "deep"])
def test_the_memory_format_changes_the_order_of_sums_alone(network):
    torch.manual_seed(1)
    one = make_network(IMAGE, ACTIONS, network)
    other = make_network(IMAGE, ACTIONS, network, memory_format="contiguous")
    other.load_state_dict(one.state_dict())
    inputs = random_inputs(IMAGE)

    outputs = unroll(one, inputs), unroll(copy.deepcopy(other), inputs)

    torch.testing.assert_close(outputs[0], outputs[1], **TOLERANCE)
    formats = (torch.channels_last, torch.contiguous_format)
    for made, memory_format in zip((one, other), formats, strict=True):
        images = seen_by(made.torso.convolutions, made, inputs)
        assert images.is_contiguous(memory_format=memory_format)
