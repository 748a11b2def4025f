"""What is said of a score: what it was played under, and what a human's is."""

import pytest
from gymnasium.spaces import Discrete

from monobeast import environments
from monobeast.config import Config
from monobeast.episode import Episode
from monobeast.score import describe_conditions, summarize

TWENTY = [Episode(value, 9, is_capped=False) for value in (19.0, 21.0)]


def conditions(action_space=Discrete(6), **settings):
    return describe_conditions(environments.resolve(Config(**settings)), action_space, seed=3)


def test_what_changes_the_meaning_of_an_atari_score_is_said():
    assert conditions(env="ALE/Pong-v5") == (
        "actions sampled from the policy, seed 3, sticky actions 0.25, minimal set of 6 actions, 0 to 30 no-ops, "
        "frame skip 4, at most 108,000 frames, a lost life does not end the episode"
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"greedy": True}, "the most probable action"),
        ({"sticky_actions": 0.0}, "sticky actions 0,"),
        ({"full_action_space": True, "action_space": Discrete(18)}, "full set of 18 actions"),
        ({"noop_max": 0}, "0 to 0 no-ops"),
        ({"env_kwargs": '{"maxpool": false}'}, 'env_kwargs {"maxpool": false}'),
    ],
)
def test_a_setting_that_differs_is_said(settings, words):
    assert words in conditions(env="PongNoFrameskip-v4", **settings)


def test_other_environments_have_no_such_settings():
    assert conditions(env="CartPole-v1") == "actions sampled from the policy, seed 3"


def test_the_mean_of_an_atari_game_is_set_beside_a_humans():
    # Of Pong, random play has -20.7 points and a human 14.6: (20 + 20.7) / (14.6 + 20.7) = 115.3 %.
    text = summarize(TWENTY, "ALE/Pong-v5")

    assert text.endswith("maximum 21; human-normalized 115.3 %: 0 is random play (-20.7), 100 a human (14.6)")


def test_a_game_without_a_known_human_score_is_said_to_be_one():
    assert summarize(TWENTY, "ALE/Othello-v5").endswith("maximum 21; no human score is known for othello")


@pytest.mark.parametrize("env", ["", "CartPole-v1"])
def test_nobody_knows_a_humans_score_of_other_environments(env):
    assert summarize(TWENTY, env).endswith("maximum 21")


def test_a_part_of_a_game_is_not_set_beside_a_human():
    text = summarize([*TWENTY, Episode(0.0, 9, is_capped=True)], "ALE/Pong-v5")

    assert text.endswith("1 of them cut off by --max_episode_steps") and "human" not in text
