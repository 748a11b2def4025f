import multiprocessing
import os
import sys

import pytest
import torch

from monobeast.runs import checkpoint

if sys.platform != "win32":
    import resource


def test_a_checkpoint_comes_back_as_it_was(tmp_path):
    checkpoint.save(tmp_path, {"weights": {"a": torch.arange(3)}, "step": 2**40, "name": "x", "none": None})

    content = checkpoint.load(tmp_path)

    assert torch.equal(content["weights"]["a"], torch.arange(3))
    assert (content["step"], content["name"], content["none"]) == (2**40, "x", None)


def test_a_save_that_fails_leaves_the_old_checkpoint_and_no_other_file(tmp_path, monkeypatch):
    checkpoint.save(tmp_path, {"step": 1})

    def fail(descriptor):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        checkpoint.save(tmp_path, {"step": 2})

    assert checkpoint.load(tmp_path)["step"] == 1
    assert [path.name for path in tmp_path.iterdir()] == [checkpoint.FILE_NAME]


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is the kernel's")
@pytest.mark.parametrize("room", [0, 1, 500, 5_000, 90_000, 99_999])
def test_a_disk_that_is_full_after_any_number_of_bytes_is_an_oserror(tmp_path, room):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
        with pytest.raises(OSError):
            checkpoint.save(tmp_path, {"weights": torch.zeros(25_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not any(tmp_path.iterdir())


def test_wherever_bytes_are_damaged_the_checkpoint_before_is_used(tmp_path, caplog):
    checkpoint.save(tmp_path, {"weights": torch.ones(1000), "step": 1})
    checkpoint.save(tmp_path, {"weights": torch.ones(1000), "step": 2})
    path = tmp_path / checkpoint.FILE_NAME
    whole = path.read_bytes()

    for place in range(0, len(whole), 97):
        path.write_bytes(whole[:place] + bytes(255 - byte for byte in whole[place : place + 50]) + whole[place + 50 :])
        content = checkpoint.load(tmp_path)
        assert torch.equal(content["weights"], torch.ones(1000))  # what is only padding may be anything

    assert len(caplog.messages) > len(whole) / 97 / 2
    assert f"{path} is not a checkpoint: " in caplog.messages[0] and "is used in its place" in caplog.messages[0]


@pytest.mark.parametrize("content", [b"", b"just text", b"\x80\x05half a pickle"])
def test_what_is_no_checkpoint_is_named(tmp_path, content):
    path = tmp_path / checkpoint.FILE_NAME
    path.write_bytes(content)

    with pytest.raises(ValueError, match=f"{path} is not a checkpoint"):
        checkpoint.load(tmp_path)


def test_a_checkpoint_that_is_closed_to_us_is_not_taken_for_a_damaged_one(tmp_path, monkeypatch):
    for step in (1, 2):
        checkpoint.save(tmp_path, {"step": step})

    def refuse(path, *_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(checkpoint, "open", refuse, raising=False)

    with pytest.raises(PermissionError):
        checkpoint.load(tmp_path)


def test_a_missing_checkpoint_is_named(tmp_path):
    with pytest.raises(ValueError, match=f"no checkpoint at {tmp_path}"):
        checkpoint.load(tmp_path)


def test_a_checkpoint_of_another_format_is_refused(tmp_path):
    torch.save({"format_version": 99}, tmp_path / checkpoint.FILE_NAME)

    with pytest.raises(ValueError, match="its format is 99"):
        checkpoint.load(tmp_path)


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    torch.save({"format_version": 1, "evil": Evil()}, tmp_path / checkpoint.FILE_NAME)

    with pytest.raises(ValueError, match="is not a checkpoint"):
        checkpoint.load(tmp_path)
    assert not (tmp_path / "ran").exists()


def save_and_die(folder, step, calls):
    """Saves, and ends without any clearing up in the `calls`-th call that changes the folder or its files."""

    def count(function):
        def counted(*arguments, **options):
            nonlocal calls
            calls -= 1
            if calls == 0:
                os._exit(9)
            return function(*arguments, **options)

        return counted

    for name in ("fsync", "link", "replace", "unlink", "open"):
        setattr(os, name, count(getattr(os, name)))
    torch.save = count(torch.save)
    checkpoint.save(folder, {"step": step})


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs a copy of this process")
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_kill_at_any_point_of_a_save_leaves_a_checkpoint_and_the_next_save_no_other_file(tmp_path):
    """Every point at which something on the disk changes, one after the other; see also test_endurance."""
    exit_codes = []
    while 0 not in exit_codes:
        checkpoint.save(tmp_path, {"step": 1})
        arguments = (tmp_path, 2, len(exit_codes) + 1)
        child = multiprocessing.get_context("fork").Process(target=save_and_die, args=arguments)
        child.start()
        child.join()
        exit_codes.append(child.exitcode)

        assert checkpoint.load(tmp_path)["step"] in (1, 2)
        checkpoint.save(tmp_path, {"step": 3})
        assert checkpoint.load(tmp_path)["step"] == 3
        names = sorted(path.name for path in tmp_path.iterdir())
        assert names == [checkpoint.PREVIOUS_FILE_NAME, checkpoint.FILE_NAME]

    assert set(exit_codes[:-1]) == {9} and len(exit_codes) > 5
