import os
import signal
import tempfile

import hypothesis
import pytest
import torch
from hand_clock import HandClock

from monobeast import child
from monobeast.silence import Silence


def pytest_configure():
    """In the background of a shell pytest starts with SIGINT ignored, and so would what tests start and interrupt."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    hypothesis.settings.register_profile("monobeast", deadline=None)  # a busy machine is no fault of the code
    hypothesis.settings.load_profile("monobeast")


def pytest_sessionstart(session):
    """What `auto` measures is kept apart from the user's, and once for all tests, those in further processes too."""
    session.config.cache_folder = tempfile.TemporaryDirectory(prefix="monobeast-tests-cache-")
    os.environ["XDG_CACHE_HOME"] = session.config.cache_folder.name


def pytest_sessionfinish(session):
    session.config.cache_folder.cleanup()


@pytest.fixture(autouse=True)
def one_thread():
    """Tests compute little: more threads than one would only wait for each other beside the actors' processes."""
    torch.set_num_threads(1)


@pytest.fixture
def clock(monkeypatch):
    """What counts the silence of children that are started in the test."""
    moved_by_hand = HandClock()
    monkeypatch.setattr(child, "Silence", lambda: Silence(moved_by_hand))
    return moved_by_hand
