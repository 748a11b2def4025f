import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from torch import nn

from monobeast.networks import AgentInput, make_network
from monobeast.networks.agent import LSTM
from monobeast.networks.torsos import ImageTorso, ResidualBlock, VectorTorso

# Kernels add up in another order for another number of rows.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
NUM_ACTIONS = 5
IMAGE = Box(0, 255, (4, 36, 36), np.uint8)
VECTOR = Box(-1, 1, (8,), np.float32)
EVERY_NETWORK = pytest.mark.parametrize(
    ("space", "network"), [(IMAGE, "shallow"), (IMAGE, "deep"), (VECTOR, "mlp"), (Discrete(6), "mlp")]
)
WITH_AND_WITHOUT_LSTM = pytest.mark.parametrize("use_lstm", [False, True])


def make(space=VECTOR, network="auto", use_lstm=False, num_actions=NUM_ACTIONS):
    torch.manual_seed(1)
    return make_network(space, num_actions, network, use_lstm)


def random_inputs(space=VECTOR, num_steps=8, num_columns=2):
    """Inputs without an episode that begins."""
    space.seed(2)
    generator = torch.Generator().manual_seed(3)
    shape = (num_steps, num_columns)
    samples = np.stack([space.sample() for _ in range(num_steps * num_columns)])
    return AgentInput(
        observation=torch.from_numpy(samples).unflatten(0, shape),
        is_first=torch.zeros(shape, dtype=torch.bool),
        last_action=torch.randint(NUM_ACTIONS, shape, generator=generator),
        last_reward=torch.randn(shape, generator=generator),
    )


def random_state(num_columns=2):
    generator = torch.Generator().manual_seed(4)
    return tuple(torch.randn(1, num_columns, 256, generator=generator) for _ in ("hidden", "cell"))


def unroll(network, inputs, state=None, steps=slice(None)):
    state = network.initial_state(inputs.is_first.shape[1]) if state is None else state
    with torch.no_grad():
        return network(AgentInput(*(tensor[steps] for tensor in inputs)), state)


def seen_by(module, network, inputs):
    """What the module gets when the network unrolls over the inputs."""
    seen = []
    handle = module.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    unroll(network, inputs)
    handle.remove()
    return seen[0]


def first_layer(network):
    return next(module for module in network.modules() if isinstance(module, nn.Linear | nn.Conv2d))


# Time


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
        torch.testing.assert_close(step.policy_logits[0], whole.policy_logits[t], **TOLERANCE)
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
    torch.testing.assert_close(output.policy_logits[3:, 0], fresh.policy_logits[:, 0], **TOLERANCE)
    torch.testing.assert_close(output.baseline[:3, 0], without.baseline[:3, 0], **TOLERANCE)
    torch.testing.assert_close(output.baseline[:, 1], without.baseline[:, 1], **TOLERANCE)
    assert not torch.allclose(output.baseline[3:, 0], without.baseline[3:, 0], **TOLERANCE)


def test_a_state_that_nobody_wrote_does_not_reach_an_episode():
    network, inputs = make(use_lstm=True), random_inputs()
    inputs.is_first[0] = True

    output = unroll(network, inputs, tuple(torch.full_like(part, torch.nan) for part in random_state()))

    torch.testing.assert_close(output, unroll(network, inputs), **TOLERANCE)


def test_the_lstm_computes_what_torch_computes():
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


# Last action and last reward


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

    assert (after.policy_logits[0, 0] != before.policy_logits[0, 0]).any()
    assert torch.equal(after.policy_logits[0, 1], before.policy_logits[0, 1])
    assert torch.equal(after.baseline[0, 1], before.baseline[0, 1])


def test_a_first_step_has_neither_last_action_nor_last_reward():
    network, inputs = make(), random_inputs(num_steps=1)
    inputs.is_first[0, 0] = True
    inputs.last_action[0, 0], inputs.last_reward[0, 0] = -1, torch.nan  # as in a store that nobody wrote

    seen = seen_by(network.policy, network, inputs)

    assert not seen[0, 0, 256:].any() and seen[0, 1, 256:].any()


# Observations


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((84, 84, 3), "hwc"),
        ((3, 84, 84), "chw"),
        ((4, 84, 84), "chw"),
        ((84, 84), "hw"),
        ((210, 160, 3), "hwc"),
        ((3, 210, 160), "chw"),
        ((160, 40, 1), "hwc"),
        ((4, 40, 84, 3), "shwc"),
        ((4, 3, 40, 84), "schw"),
    ],
)
@pytest.mark.parametrize("network", ["auto", "deep"])
def test_images_of_every_layout_reach_the_convolutions_channels_first(shape, layout, network):
    network = make(Box(0, 255, shape, np.uint8), network)
    inputs = random_inputs(Box(0, 255, shape, np.uint8), num_steps=1)

    seen = seen_by(network.torso.convolutions, network, inputs)

    to_channels_first = {"hw": "nhw->nhw", "hwc": "nhwc->nchw", "chw": "nchw->nchw"}.get(layout)
    expected = torch.einsum(to_channels_first or f"n{layout}->nschw", inputs.observation[0])
    height, width = (shape[layout.index(letter)] for letter in "hw")
    assert torch.equal(seen, expected.reshape(2, -1, height, width) / 255)


@pytest.mark.parametrize("shape", [(84, 84, 3), (4, 84, 84)])
def test_convolutions_run_in_the_faster_memory_format(shape):
    network = make(Box(0, 255, shape, np.uint8))

    seen = seen_by(network.torso.convolutions, network, random_inputs(Box(0, 255, shape, np.uint8)))

    assert seen.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("dtype", "shape", "value", "expected"),
    [
        (np.uint8, (4, 84, 84), 255, 1.0),
        (np.uint8, (84, 84, 3), 51, 0.2),
        (np.uint8, (10, 5), 255, 1.0),
        (np.uint8, (128,), 255, 1.0),
        (np.float32, (4, 84, 84), 0.5, 0.5),
        (np.float32, (8,), 0.5, 0.5),
        (np.float32, (8,), -3.7, -3.7),
        (np.float64, (8,), -3.7, -3.7),
        (np.float64, (84, 84, 3), 255.0, 255.0),
        (np.int16, (21, 79), 1000, 1000.0),
        (np.int8, (), -1, -1.0),
    ],
)
def test_only_bytes_are_divided_by_255_and_once(dtype, shape, value, expected):
    space = Box(-1e4 if np.issubdtype(dtype, np.floating) else np.iinfo(dtype).min, np.iinfo(np.int8).max, shape, dtype)
    network, inputs = make(space), random_inputs(space, num_steps=1)
    inputs.observation.fill_(value)

    seen = seen_by(first_layer(network), network, inputs)

    assert seen.dtype == torch.float32
    assert torch.equal(seen, torch.full_like(seen, expected))


@pytest.mark.parametrize("start", [0, -3])
def test_discrete_observations_are_one_hot(start):
    space = Discrete(6, start=start)
    network, inputs = make(space), random_inputs(space, num_steps=3)
    inputs.observation[:, 0] = torch.tensor([0, 5, 2]) + start

    seen = seen_by(first_layer(network), network, inputs).unflatten(0, (3, 2))

    assert torch.equal(seen[:, 0], torch.eye(6)[[0, 5, 2]])


@WITH_AND_WITHOUT_LSTM
@pytest.mark.parametrize("space", [IMAGE, VECTOR, Box(-1, 1, (36, 36), np.float32)])
def test_inputs_stay_as_they_are(space, use_lstm):
    network, inputs, state = make(space, use_lstm=use_lstm), random_inputs(space), random_state() if use_lstm else ()
    inputs.is_first[2] = True
    copies = [tensor.clone() for tensor in (*inputs, *state)]

    unroll(network, inputs, state)

    assert all(map(torch.equal, copies, (*inputs, *state)))


# Which network


@pytest.mark.parametrize(
    ("space", "torso"),
    [
        (Box(0, 255, (4, 84, 84), np.uint8), ImageTorso),
        (Box(0, 255, (3, 36, 36), np.uint8), ImageTorso),
        (Box(0, 1, (84, 84, 3), np.float32), ImageTorso),
        (Box(0, 255, (10, 5), np.uint8), VectorTorso),
        (Box(0, 255, (1, 10, 10), np.uint8), VectorTorso),
        (Box(0, 255, (3, 35, 36), np.uint8), VectorTorso),
        (Box(0, 1, (10, 10, 10), np.float32), VectorTorso),
        (Box(0, 255, (128,), np.uint8), VectorTorso),
        (Box(0, 1, (), np.float32), VectorTorso),
        (Box(0, 1, (40, 40, 2, 2, 2), np.float32), VectorTorso),
        (Discrete(500), VectorTorso),
    ],
)
def test_auto_takes_convolutions_for_what_is_large_enough(space, torso):
    assert isinstance(make(space).torso, torso)
    assert unroll(make(space), random_inputs(space)).baseline.shape == (8, 2)


def test_the_shallow_network_is_that_of_torchbeast():
    shapes = [tuple(parameter.shape) for parameter in make(Box(0, 255, (4, 84, 84), np.uint8), "shallow").parameters()]

    convolutions = [(32, 4, 8, 8), (32,), (64, 32, 4, 4), (64,), (64, 64, 3, 3), (64,)]
    assert shapes == [*convolutions, (512, 3136), (512,), (NUM_ACTIONS, 518), (NUM_ACTIONS,), (1, 518), (1,)]


def test_the_deep_network_is_that_of_the_paper():
    network = make(Box(0, 255, (4, 84, 84), np.uint8), "deep")

    convolutions = [module for module in network.modules() if isinstance(module, nn.Conv2d)]
    sections = [(4, 16), *[(16, 16)] * 4, (16, 32), *[(32, 32)] * 4, *[(32, 32)] * 5]
    assert [(layer.in_channels, layer.out_channels) for layer in convolutions] == sections
    assert {layer.kernel_size for layer in convolutions} == {(3, 3)}
    assert network.torso.fully_connected.weight.shape == (256, 32 * 11 * 11)


def test_a_residual_block_adds_to_its_input():
    block = ResidualBlock(3)
    x = torch.randn(2, 3, 5, 5, generator=torch.Generator().manual_seed(6))
    with torch.no_grad():
        for layer in (block.first, block.second):
            nn.init.dirac_(layer.weight, 1)

        assert torch.equal(block(x), x + x.relu())


@pytest.mark.parametrize("shape", [(4, 84, 4), (84, 84, 84), (84, 3, 84), (33, 84, 84), (84, 84, 3, 3), (8,), ()])
@pytest.mark.parametrize("network", ["shallow", "deep"])
def test_a_shape_that_could_be_anything_is_refused_by_name(shape, network):
    space = Box(0, 255, shape, np.uint8)

    with pytest.raises(ValueError, match=f"--network {network}: .*--network mlp") as refusal:
        make(space, network)

    assert str(space) in str(refusal.value)
    assert isinstance(make(space, "mlp").torso, VectorTorso)


def test_auto_refuses_a_large_image_whose_channels_it_cannot_find():
    with pytest.raises(ValueError, match=r"\(84, 84, 84\).*--network mlp"):
        make(Box(0, 255, (84, 84, 84), np.uint8))


@pytest.mark.parametrize("shape", [(1, 10, 10), (10, 5), (35, 84, 3), (3, 84, 35)])
def test_an_image_too_small_for_the_kernels_is_refused_by_name(shape):
    with pytest.raises(ValueError, match="--network shallow: .*--network mlp") as refusal:
        make(Box(0, 255, shape, np.uint8), "shallow")

    assert str(shape) in str(refusal.value)


@pytest.mark.parametrize("shape", [(1, 10, 10), (10, 5), (1, 1)])
def test_the_deep_network_takes_images_of_any_size(shape):
    space = Box(0, 255, shape, np.uint8)

    assert unroll(make(space, "deep"), random_inputs(space)).baseline.shape == (8, 2)


@pytest.mark.parametrize(
    "space",
    [Dict(glyphs=Box(0, 9, (21, 79), np.int16)), Tuple([VECTOR, VECTOR]), MultiBinary(3), MultiDiscrete([3, 2])],
)
def test_other_spaces_are_refused_and_can_be_flattened(space):
    with pytest.raises(ValueError, match="FlattenObservation") as refusal:
        make(space)

    assert str(space) in str(refusal.value)
    assert make(gymnasium.spaces.flatten_space(space))


def test_an_unknown_network_is_refused():
    with pytest.raises(ValueError, match="--network resnet: .*shallow, deep, mlp"):
        make(network="resnet")


# Weights and outputs


@EVERY_NETWORK
@WITH_AND_WITHOUT_LSTM
def test_a_gradient_reaches_every_parameter(space, network, use_lstm):
    network, inputs = make(space, network, use_lstm), random_inputs(space)

    output = network(inputs, random_state() if use_lstm else ())
    (output.policy_logits.square().sum() + output.baseline.square().sum()).backward()

    assert [name for name, parameter in network.named_parameters() if not parameter.grad.any()] == []


@EVERY_NETWORK
@WITH_AND_WITHOUT_LSTM
def test_an_untrained_policy_is_nearly_uniform_but_not_blind(space, network, use_lstm):
    output = unroll(make(space, network, use_lstm), random_inputs(space))

    torch.testing.assert_close(
        output.policy_logits.softmax(-1), torch.full((8, 2, NUM_ACTIONS), 1 / NUM_ACTIONS), rtol=0, atol=0.02
    )
    assert output.policy_logits.flatten(0, 1).std(0).min() > 1e-5


@pytest.mark.parametrize("network", ["shallow", "deep", "mlp"])
def test_untrained_features_are_of_the_size_of_one(network):
    network, inputs = make(IMAGE, network), random_inputs(IMAGE)

    features = network.torso(inputs.observation.flatten(0, 1))

    assert 0.1 < features.square().mean().sqrt() < 3


@EVERY_NETWORK
@WITH_AND_WITHOUT_LSTM
@pytest.mark.parametrize("autocast", [False, True])
def test_outputs_are_float32_and_time_comes_first(space, network, use_lstm, autocast):
    network = make(space, network, use_lstm)

    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        output = unroll(network, random_inputs(space, num_steps=3))

    tensors = (output.policy_logits, output.baseline, *output.core_state)
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

    logits = unroll(make(num_actions=1), inputs).policy_logits

    assert torch.distributions.Categorical(logits=logits).entropy().tolist() == [[0.0] * 2] * 8


def test_the_seed_alone_decides_the_weights():
    first, again = (nn.utils.parameters_to_vector(make(IMAGE, "deep", True).parameters()) for _ in range(2))
    other = nn.utils.parameters_to_vector(make_network(IMAGE, NUM_ACTIONS, "deep", True).parameters())

    assert torch.equal(first, again) and not torch.equal(first, other)
