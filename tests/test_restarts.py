"""`--max_actor_restarts` is a number of restarts within any hour."""

from types import SimpleNamespace

import pytest
from hand_clock import HandClock

from monobeast import restarts
from monobeast.restarts import RestartLimit


@pytest.fixture
def clock(monkeypatch):
    moved_by_hand = HandClock()
    monkeypatch.setattr(restarts, "time", SimpleNamespace(monotonic=moved_by_hand))
    return moved_by_hand


def test_so_many_are_allowed_and_no_more(clock):
    limit = RestartLimit(3)

    assert [limit.take() for _ in range(5)] == [True, True, True, False, False]
    assert str(limit) == "--max_actor_restarts 3 within an hour"


def test_each_counts_for_an_hour_and_one_that_was_refused_not_at_all(clock):
    limit, allowed = RestartLimit(2), {}
    for minute in (0, 40, 50, 59, 61, 99, 101, 121, 122):
        clock.now = 60.0 * minute
        allowed[minute] = limit.take()

    assert [minute for minute, is_allowed in allowed.items() if is_allowed] == [0, 40, 61, 101, 122]


def test_none_may_be_allowed(clock):
    limit = RestartLimit(0)
    clock.tick(7200)

    assert not limit.take()
