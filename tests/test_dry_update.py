"""An update that only measures."""

import pytest
import torch
from resource_needs import IMAGE, VECTOR, make_agent, make_config

from monobeast.resources import dry_update


def fake_cuda(monkeypatch, error=None):
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 1000)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 5000)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    emptied = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(True))
    if error is not None:
        monkeypatch.setattr(dry_update.Learner, "update", lambda self, batch: (_ for _ in ()).throw(error))
    return emptied


def test_a_dry_update_measures_its_peak_and_learns_nothing(monkeypatch):
    emptied = fake_cuda(monkeypatch)
    agent = make_agent(VECTOR)
    before = {name: tensor.clone() for name, tensor in agent.state_dict().items()}

    assert dry_update.measure_peak(make_config(), VECTOR, agent) == 4000

    assert all(torch.equal(tensor, before[name]) for name, tensor in agent.state_dict().items())
    assert emptied


def test_out_of_memory_is_an_answer(monkeypatch):
    emptied = fake_cuda(monkeypatch, torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"))

    assert dry_update.measure_peak(make_config(), VECTOR, make_agent(VECTOR)) is None
    assert emptied


def test_any_other_failure_of_the_gpu_is_not(monkeypatch):
    fake_cuda(monkeypatch, RuntimeError("CUDA error: an illegal memory access was encountered"))

    with pytest.raises(RuntimeError, match="illegal"):
        dry_update.measure_peak(make_config(), VECTOR, make_agent(VECTOR))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_real_gpu_gives_a_peak_and_takes_its_memory_back():
    before = torch.cuda.memory_allocated()
    configs = [make_config(device="cuda", batch_size=size) for size in (8, 64)]
    peaks = [dry_update.measure_peak(config, IMAGE, make_agent()) for config in configs]

    assert 0 < peaks[0] < peaks[1]
    assert torch.cuda.memory_allocated() == before
    huge = make_config(device="cuda", batch_size=8192, unroll_length=100)  # 180 GB
    assert dry_update.measure_peak(huge, IMAGE, make_agent()) is None
    assert torch.cuda.memory_allocated() == before
