import signal

import pytest
import torch


def pytest_configure():
    """In the background of a shell pytest starts with SIGINT ignored, and so would what tests start and interrupt."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def one_thread():
    """Tests compute little: more threads than one would only wait for each other beside the actors' processes."""
    torch.set_num_threads(1)
