import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """Tests compute little: more threads than one would only wait for each other beside the actors' processes."""
    torch.set_num_threads(1)
