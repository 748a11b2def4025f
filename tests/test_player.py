"""Playing: the recurrent state is carried, the game is the game, and no step beyond the cap is taken."""

from pathlib import Path

import pytest
import torch

from monobeast import environments
from monobeast.config import Config
from monobeast.distributions import Categorical
from monobeast.episode import Episode
from monobeast.networks import AgentInput, AgentOutput
from monobeast.player import Player, play
from monobeast.policy import LocalPolicy
from monobeast.score import summarize


class SpyNetwork(torch.nn.Module):
    """Prefers action 1, remembers what it was given; its state counts the steps since the last first one."""

    def __init__(self):
        super().__init__()
        self.distribution = Categorical(2)
        self.seen = []

    def initial_state(self, batch_size):
        return (torch.zeros(1, batch_size, 1),)

    def forward(self, inputs, core_state):
        inputs = AgentInput(*(tensor.clone() for tensor in inputs))  # environments reuse the memory
        self.seen.append((inputs, core_state[0].item()))
        logits = torch.tensor([[[0.0, 1.0]]])
        state = core_state[0].masked_fill(inputs.is_first, 0.0) + 1
        return AgentOutput(logits, torch.zeros(1, 1), (state,))


def make_player(env, env_kwargs="{}", greedy=False, **settings):
    config = Config(env=f"stub_environments:{env}", env_kwargs=env_kwargs, greedy=greedy, **settings)
    network = SpyNetwork()
    environment = environments.make(config, 1, [1])
    policy = LocalPolicy(network, None, seed=0, greedy=greedy)
    return Player(Path(), config, environment, policy, step=0, seed=1), network


def test_the_recurrent_state_is_carried_from_step_to_step():
    player, network = make_player("Fixed5-v0", num_episodes=2)

    list(play(player))

    assert [state for _, state in network.seen] == [0, 1, 2, 3, 4] * 2
    assert [bool(inputs.is_first) for inputs, _ in network.seen] == [True, False, False, False, False] * 2


def test_the_policy_sees_the_last_action_and_reward():
    player, network = make_player("Echo-v0", '{"n": 2, "start": 0}', num_episodes=1, max_episode_steps=20)

    list(play(player))

    inputs = [step_inputs for step_inputs, _ in network.seen]
    # This environment answers with the action it was given.
    assert [int(i.last_action) for i in inputs[1:]] == [int(i.observation) for i in inputs[1:]]
    assert all(float(i.last_reward) == 1.0 for i in inputs[1:])


def test_greedy_takes_the_mode_and_sampling_does_not():
    def actions(greedy):
        player, network = make_player("Echo-v0", '{"n": 2, "start": 0}', greedy, num_episodes=1, max_episode_steps=200)
        list(play(player))
        return {int(inputs.last_action) for inputs, _ in network.seen[1:]}

    assert actions(greedy=True) == {1}
    assert actions(greedy=False) == {0, 1}


@pytest.mark.parametrize("env", ["Fixed5-v0", "Trunc5-v0", "Both5-v0"])
def test_every_episode_is_played_to_its_end_once(env):
    player, _ = make_player(env, num_episodes=3)

    assert list(play(player)) == [Episode(5.0, 5, is_capped=False)] * 3


def test_an_episode_that_does_not_end_is_cut_off_and_the_next_begins_afresh():
    player, network = make_player("Counter-v0", num_episodes=2, max_episode_steps=4)

    episodes = list(play(player))

    assert episodes == [Episode(4.0, 4, is_capped=True)] * 2
    assert [float(inputs.observation) for inputs, _ in network.seen] == [0, 1, 2, 3] * 2


def test_the_summary_has_mean_deviation_and_extremes():
    episodes = [Episode(value, 9, is_capped=False) for value in (1.0, 2.0, 6.0)]

    text = summarize(episodes)

    assert text == "return over 3 episodes: mean 3.00, standard deviation 2.65, minimum 1, maximum 6"


def test_the_summary_tells_of_episodes_cut_off():
    assert "1 of them cut off" in summarize([Episode(1.0, 9, is_capped=True), Episode(1.0, 9, is_capped=False)])
