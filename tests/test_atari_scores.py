"""The reference scores: their medians are the published ones."""

import statistics

import gymnasium
import pytest

from monobeast.atari_scores import human_normalized, reference_scores


@pytest.mark.parametrize(
    ("agent", "median"),
    [
        ("impala_shallow_200M_frames", 93.2),
        ("impala_deep_200M_frames", 191.8),
        ("monobeast_200M_frames_sticky_mean", 159.7),
    ],
)
def test_the_median_over_57_games_is_the_published_one(agent, median):
    scores = [human_normalized(game, getattr(row, agent)) for game, row in reference_scores().items()]

    assert len(scores) == 57
    assert round(statistics.median(scores), 1) == median


def test_random_play_has_0_and_a_human_100_percent():
    assert human_normalized("pong", -20.7) == 0
    assert human_normalized("pong", 14.6) == pytest.approx(100)


def test_a_game_without_references_is_named():
    with pytest.raises(ValueError, match="'chess'"):
        human_normalized("chess", 1.0)


def test_the_games_are_named_as_by_ale():
    import ale_py

    gymnasium.register_envs(ale_py)
    known = {spec.kwargs["game"] for name, spec in gymnasium.registry.items() if name.startswith("ALE/")}

    assert set(reference_scores()) <= known
