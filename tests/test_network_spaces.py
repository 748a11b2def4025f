"""How observations of every kind reach the network, and which network they get."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from network_inputs import IMAGE, NUM_ACTIONS, VECTOR, make, random_inputs, random_state, seen_by, unroll
from torch import nn

from monobeast import trees
from monobeast.networks.torsos import ImageTorso, ResidualBlock, VectorTorso


def first_layer(network):
    return next(module for module in network.modules() if isinstance(module, nn.Linear | nn.Conv2d))


@pytest.mark.parametrize(
    ("shape", "axes", "image_shape"),
    [
        ((84, 84, 3), "hwc->chw", (3, 84, 84)),
        ((3, 84, 84), "chw->chw", (3, 84, 84)),
        ((4, 84, 84), "chw->chw", (4, 84, 84)),
        ((84, 84), "hw->hw", (1, 84, 84)),
        ((210, 160, 3), "hwc->chw", (3, 210, 160)),
        ((3, 210, 160), "chw->chw", (3, 210, 160)),
        ((160, 40, 1), "hwc->chw", (1, 160, 40)),
        ((4, 40, 84, 3), "shwc->schw", (12, 40, 84)),
        ((4, 3, 40, 84), "schw->schw", (12, 40, 84)),
    ],
)
@pytest.mark.parametrize("network", ["auto", "deep"])
def test_images_of_every_layout_reach_the_convolutions_channels_first(shape, axes, image_shape, network):
    space = Box(0, 255, shape, np.uint8)
    network, inputs = make(space, network), random_inputs(space, num_steps=1)

    seen = seen_by(network.torso.convolutions, network, inputs)

    images = torch.einsum("n" + axes.replace("->", "->n"), inputs.observation[0])
    images = images.reshape(2, *image_shape) / 255
    torch.testing.assert_close(seen, images - images.mean((1, 2, 3), keepdim=True))


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
    inputs.observation[..., :1] = 0  # a part of every image, since all of them lose their mean
    is_image = isinstance(network.torso, ImageTorso)

    seen = seen_by(first_layer(network), network, inputs)

    assert seen.dtype == torch.float32
    difference = seen.max() - seen.min() if is_image else seen.abs().max() * np.sign(expected)
    assert difference.item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("start", [0, -3])
def test_discrete_observations_are_one_hot(start):
    space = Discrete(6, start=start)
    network, inputs = make(space), random_inputs(space, num_steps=3)
    inputs.observation[:, 0] = torch.tensor([0, 5, 2]) + start

    seen = seen_by(first_layer(network), network, inputs).unflatten(0, (3, 2))

    assert torch.equal(seen[:, 0], torch.eye(6)[[0, 5, 2]])


@pytest.mark.parametrize("use_lstm", [False, True])
@pytest.mark.parametrize("space", [IMAGE, VECTOR, Box(-1, 1, (36, 36), np.float32)])
def test_inputs_stay_as_they_are(space, use_lstm):
    network, inputs, state = make(space, use_lstm=use_lstm), random_inputs(space), random_state() if use_lstm else ()
    inputs.is_first[2] = True
    copies = [tensor.clone() for tensor in (*inputs, *state)]

    unroll(network, inputs, state)

    assert all(map(torch.equal, copies, (*inputs, *state)))


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


@pytest.mark.parametrize("sign", [1, -1])
def test_a_residual_block_adds_two_rectified_convolutions_to_its_input(sign):
    block = ResidualBlock(3)
    x = torch.randn(2, 3, 5, 5, generator=torch.Generator().manual_seed(6))
    with torch.no_grad():
        nn.init.dirac_(block.first.weight).mul_(sign)
        nn.init.dirac_(block.second.weight)

        assert torch.equal(block(x), x + (sign * x.relu()).relu())


@pytest.mark.parametrize("shape", [(4, 84, 4), (84, 84, 84), (84, 3, 84), (33, 84, 84), (84, 84, 40, 3), (8,), ()])
@pytest.mark.parametrize("network", ["shallow", "deep"])
def test_a_shape_that_could_be_anything_is_refused_by_name(shape, network):
    space = Box(0, 255, shape, np.uint8)

    with pytest.raises(ValueError, match=f"--network {network}: .*--network mlp") as refusal:
        make(space, network)

    assert str(space) in str(refusal.value)


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
    ("space", "value", "expected"),
    [
        (MultiBinary(3), [0, 1, 1], [0, 1, 1]),
        (MultiBinary([2, 2]), [[0, 1], [1, 1]], [0, 1, 1, 1]),
        (MultiDiscrete([3, 2]), [2, 0], [0, 0, 1, 1, 0]),
        (MultiDiscrete([[1, 2], [3, 1]], start=[[0, -5], [1, 0]]), [[0, -4], [3, 0]], [1, 0, 1, 0, 0, 1, 1]),
        (Box(0, 1, (2,), np.bool_), [False, True], [0, 1]),
        (Box(-9, 9, (2,), np.float16), [-0.5, 1.5], [-0.5, 1.5]),
        (Tuple([Box(0, 1, (0, 3)), MultiBinary(2)]), (np.zeros((0, 3)), [1, 0]), [1, 0]),
        (Tuple([Discrete(3, start=5), Box(0, 255, (), np.uint8)]), (6, 51), [0, 1, 0, 0.2]),
        (Dict({"b.c": Box(-9, 9, (2,), np.float64), "a": Discrete(2)}), {"a": 1, "b.c": [3, 4]}, [0, 1, 3, 4]),
        (
            Dict(a=Tuple([Box(-9, 9, (1, 2), np.int8), Dict(z=MultiDiscrete([2]))])),
            {"a": ([[-1, 2]], {"z": [1]})},
            [-1, 2, 0, 1],
        ),
    ],
)
def test_parts_reach_the_vector_layers_one_after_the_other(space, value, expected):
    network, inputs = make(space), random_inputs(space, num_steps=1, num_columns=1)
    trees.map_leaves(lambda part, number: part.copy_(torch.tensor(number)), inputs.observation, value_of(value))

    seen = seen_by(first_layer(network), network, inputs)

    assert seen.dtype == torch.float32
    torch.testing.assert_close(seen[0], torch.tensor(expected, dtype=torch.float32))


def value_of(value):
    """The value with the lists of a leaf as arrays."""
    return trees.map_leaves(np.array, value)


MANY = Dict(
    camera=Box(0, 255, (36, 40, 3), np.uint8),
    more=Tuple([Box(0, 1, (40, 40), np.float32), Box(0, 1, (3,), np.float64), Discrete(4)]),
)


@pytest.mark.parametrize(("network", "num_convolutions"), [("auto", 6), ("shallow", 6), ("deep", 30), ("mlp", 0)])
def test_each_image_among_the_parts_has_convolutions_and_the_rest_the_vector_layers(network, num_convolutions):
    agent = make(MANY, network, use_lstm=True)

    assert sum(isinstance(module, nn.Conv2d) for module in agent.modules()) == num_convolutions
    if num_convolutions:
        assert [torso.image_shape for torso in agent.torso.images] == [(3, 36, 40), (1, 40, 40)]
        assert agent.torso.rest.layers[0].in_features == 3 + 4
    assert unroll(agent, random_inputs(MANY)).baseline.shape == (8, 2)


@pytest.mark.parametrize("network", ["shallow", "deep", "mlp"])
def test_every_part_makes_a_difference(network):
    agent, inputs = make(MANY, network), random_inputs(MANY)
    baseline = unroll(agent, inputs).baseline

    for name, part in trees.name_leaves(inputs.observation, "observation").items():
        before = part.clone()
        part.copy_(part.flip(0))
        assert not torch.equal(unroll(agent, inputs).baseline, baseline), name
        part.copy_(before)


def test_the_effect_of_a_part_depends_on_the_others():
    torso = make(MANY).torso
    one, other = (trees.map_leaves(lambda part: part[i], random_inputs(MANY).observation) for i in (0, 1))

    mixed = [torso(one | {"more": other["more"]}), torso(other | {"more": one["more"]})]

    difference = torso(one) + torso(other) - sum(mixed)  # 0 in a sum of functions of a part each
    assert difference.abs().max() > 1e-3


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ("shallow", "--network shallow: no part of .* is an image of at least 36x36; use --network mlp"),
        ("deep", "--network deep: no part of observation space"),
        ("torchbeast", "--network torchbeast: observation space .* has parts; AtariNet sees a single image"),
    ],
)
def test_parts_without_an_image_are_refused_where_convolutions_are_asked_for(network, message):
    with pytest.raises(ValueError, match=message):
        make(Dict(a=VECTOR, b=Box(0, 255, (10, 10), np.uint8)), network)


def test_an_unknown_network_is_refused():
    with pytest.raises(ValueError, match="--network resnet: .*mlp, shallow, deep"):
        make(network="resnet")
