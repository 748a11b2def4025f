"""bfloat16: the same function within rounding, acted with and learned from, over float32 weights."""

import pytest
import torch
from network_inputs import ACTIONS, IMAGE, VECTOR, make, random_inputs, random_state, unroll

from monobeast.config import Config
from monobeast.networks import AgentInput, make_network
from monobeast.policy import LocalPolicy
from monobeast.training import train
from monobeast.weights import SharedWeights

CASES = [(IMAGE, "shallow", False), (IMAGE, "deep", False), (VECTOR, "mlp", False), (IMAGE, "shallow", True)]
# bfloat16 keeps 8 bits: each product is off by up to 2^-8 relative, and sums of many by less than that of their size.
TOLERANCE = {"rtol": 0.02, "atol": 0.02}


def in_both(space, network, use_lstm):
    exact = make(space, network, use_lstm)
    rounded = make_network(space, ACTIONS, network, use_lstm, "bfloat16")
    rounded.load_state_dict(exact.state_dict())
    return exact, rounded


@pytest.mark.parametrize(("space", "network", "use_lstm"), CASES)
def test_outputs_are_float32_and_those_of_float32_within_rounding(space, network, use_lstm):
    exact, rounded = in_both(space, network, use_lstm)
    inputs, state = random_inputs(space), random_state() if use_lstm else ()

    expected, found = unroll(exact, inputs, state), unroll(rounded, inputs, state)

    for one, other in zip((*found[:2], *found.core_state), (*expected[:2], *expected.core_state), strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, **TOLERANCE)
    assert not torch.equal(found.baseline, expected.baseline)  # it does compute in bfloat16


def test_gradients_are_float32():
    network = make_network(IMAGE, ACTIONS, "shallow", True, "bfloat16")

    network(random_inputs(IMAGE), random_state()).baseline.sum().backward()

    gradients = {name: weight.grad for name, weight in network.named_parameters() if not name.startswith("policy")}
    assert all(gradient.dtype == torch.float32 and gradient.any() for gradient in gradients.values())


@pytest.mark.parametrize(("space", "network", "use_lstm"), CASES)
def test_the_policy_acts_by_the_newest_weights_in_bfloat16(space, network, use_lstm):
    _, learned = in_both(space, network, use_lstm)
    weights = SharedWeights(learned.parameters())
    policy = LocalPolicy(make_network(space, ACTIONS, network, use_lstm, "bfloat16"), weights, seed=1)
    inputs = AgentInput(*(tensor[:1] for tensor in random_inputs(space)))
    state = policy.initial_state(2)

    for _ in range(2):
        policy.refresh()
        found = policy.act(inputs, state)
        expected = unroll(learned, inputs, state).policy_params[0]
        torch.testing.assert_close(found.params, expected, rtol=0, atol=0.05 * expected.abs().max().item())
        assert found.params.dtype == torch.float32
        with torch.no_grad():
            for weight in learned.parameters():
                weight.mul_(1.5)
        weights.publish(learned.parameters())


def test_a_run_in_bfloat16_goes_on_in_it(tmp_path):
    run = {"env": "monobeast/Catch-v0", "num_actors": 0, "seed": 1, "savedir": str(tmp_path), "xpid": "run"}

    trained = train(Config(**run, precision="bfloat16", num_learner_threads=1, total_steps=2000))
    resumed = train(Config(**run, resume=True, total_steps=4000))

    assert (trained.state, resumed.state) == ("complete", "complete")
    assert '"precision": "bfloat16"' in (tmp_path / "run" / "meta.json").read_text()
