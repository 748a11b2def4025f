import pytest
import torch

from monobeast import checkpoint


def test_a_checkpoint_comes_back_as_it_was(tmp_path):
    checkpoint.save(tmp_path, {"weights": {"a": torch.arange(3)}, "step": 2**40, "name": "x", "none": None})

    content = checkpoint.load(tmp_path)

    assert torch.equal(content["weights"]["a"], torch.arange(3))
    assert (content["step"], content["name"], content["none"]) == (2**40, "x", None)


def test_a_save_that_fails_leaves_the_old_checkpoint_and_no_other_file(tmp_path, monkeypatch):
    checkpoint.save(tmp_path, {"step": 1})

    def fail_half_way(content, file):
        file.write(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(torch, "save", fail_half_way)
    with pytest.raises(OSError, match="no space"):
        checkpoint.save(tmp_path, {"step": 2})

    assert checkpoint.load(tmp_path)["step"] == 1
    assert [path.name for path in tmp_path.iterdir()] == [checkpoint.FILE_NAME]


@pytest.mark.parametrize("content", [b"", b"just text", b"\x80\x05half a pickle"])
def test_what_is_no_checkpoint_is_named(tmp_path, content):
    path = tmp_path / checkpoint.FILE_NAME
    path.write_bytes(content)

    with pytest.raises(ValueError, match=f"{path} is not a checkpoint"):
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
