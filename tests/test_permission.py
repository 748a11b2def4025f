"""A checkpoint's names are imported only where the user names them too."""

import dataclasses
import json
import sys

import pytest
from command_lines import run
from recorded_runs import write_run
from saved_runs import save_run

from monobeast.config import Config
from monobeast.rollouts import Rollout
from monobeast.runs import bad_batch, checkpoint, permission

EVIL = "open('ran', 'w'); raise SystemExit(0)"


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """A folder with a run and with a module that must not run; where it says so, that has been tampered with."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "evil.py").write_text(EVIL)
    save_run(tmp_path, env="monobeast/Catch-v0")
    return tmp_path


def tamper(folder, **settings):
    """Changes the settings in all that a run has left."""
    content = checkpoint.load(folder)
    batch = dict.fromkeys(Rollout._fields, 0)
    kept = {"config": content["config"] | settings, "network": content["learner"]["network"], "batch": batch}
    checkpoint.write(folder / bad_batch.FILE_NAME, kept)
    content["config"] |= settings
    checkpoint.save(folder, content)
    (folder / checkpoint.PREVIOUS_FILE_NAME).unlink()
    meta = json.loads((folder / "meta.json").read_text())
    meta["config"] |= settings
    (folder / "meta.json").write_text(json.dumps(meta))


COMMANDS = [
    ["test"],
    ["test", "--xpid", "example"],
    ["--mode", "test", "--network", "auto"],
    ["train", "--resume", "--xpid", "example"],
    ["plan", "--resume", "--xpid", "example"],
    ["export", "example", "--state_dict", "weights.pt"],
    ["replay-update", "example/bad_batch.pt"],
]


@pytest.mark.parametrize("settings", [{"network": "evil:Net"}, {"env": "evil:Id-v0"}], ids=["network", "env"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: " ".join(words))
def test_no_command_runs_the_code_that_a_strangers_run_names(stranger, capfd, settings, command):
    tamper(stranger / "example", **settings)
    (stranger / "latest").symlink_to("example")
    takes_savedir = command[0] != "replay-update"

    exit_code, _, errors = run(capfd, *command, *(["--savedir", stranger] if takes_savedir else []))

    assert "evil" not in sys.modules and not (stranger / "ran").exists()
    assert exit_code == 2 and errors.count("\n") == 1
    ((name, value),) = settings.items()
    assert f"--{name} {value}: must be given, since code that " in errors


def test_nothing_is_imported_to_list_runs_or_to_draw_them(stranger, capfd):
    write_run(stranger / "recorded", env="evil:Id-v0", network="evil:Net")
    plot = ["plot", stranger / "recorded", "--window", "1", "--out", stranger / "curve.png"]

    assert run(capfd, "ls", stranger)[0] == run(capfd, *plot)[0] == 0
    exit_code, _, errors = run(capfd, *plot, "--x", "frames")

    assert exit_code == 2 and "--x frames: whether evil:Id-v0 has frames is unknown here, as it is not impor" in errors
    assert "evil" not in sys.modules and not (stranger / "ran").exists()


OWN = Config(env="mine:Id-v0", network="mine:Net", xpid="run")
CALLS = Config(env="mine:make(...)", network="mine:Net(...)", xpid="run")
MUST_BE_GIVEN = "must be given, since code that the checkpoint"


@pytest.mark.parametrize(
    ("saved", "given", "message"),
    [
        (OWN, {}, f"--env mine:Id-v0 --network mine:Net: {MUST_BE_GIVEN} names is imported only"),
        (OWN, {"env": "mine:Id-v0"}, "--network mine:Net: must be given"),
        (OWN, {"env": "mine:Id-v0", "network": "auto"}, "--network mine:Net: must be given"),
        (OWN, {"env": "mine:Other-v0", "network": "mine:Net"}, "--env mine:Other-v0: the checkpoint is for mine:Id-v0"),
        (OWN, {"env": "mine:Id-v0", "network": "mlp"}, "--network mlp: the checkpoint is of the mine:Net network"),
        (Config(network="mlp"), {"network": "mine:Net"}, "--network mine:Net: the checkpoint is of the mlp network"),
        (Config(network="mlp"), {"network": "deep"}, "--network deep: the checkpoint is of the mlp network"),
        (CALLS, {}, r"--env ID in place of mine:make\(...\) --network module:Class in place of mine:Net\(...\): "),
    ],
)
def test_what_may_not_be_looked_at_is_refused(saved, given, message):
    with pytest.raises(ValueError, match=message):
        permission.choose(saved, given.get("env"), given.get("network"), "the checkpoint")


@pytest.mark.parametrize(
    ("saved", "given", "expected"),
    [
        (Config(network="mlp"), {}, {}),
        (Config(network="mlp"), {"network": "mlp", "env": "ALE/Pong-v5"}, {}),
        (Config(network="mlp"), {"network": "auto"}, {"network": "mlp"}),
        (OWN, {"env": "mine:Id-v0", "network": "mine:Net"}, {}),
        (OWN, {"env": "mine:Id-v0", "network": "moved:Net"}, {"network": "moved:Net"}),
        (CALLS, {"env": "CartPole-v1", "network": "mine:wide"}, {"env": "CartPole-v1", "network": "mine:wide"}),
    ],
)
def test_what_the_user_named_takes_its_place(saved, given, expected):
    chosen = permission.choose(saved, given.get("env"), given.get("network"), "the checkpoint")

    assert chosen == dataclasses.replace(saved, **expected)


def test_going_on_needs_every_name_again():
    permission.require_named(Config(xpid="run"), set())
    permission.require_named(OWN, {"env", "network"})
    with pytest.raises(ValueError, match=f"^--network mine:Net: {MUST_BE_GIVEN} of run names"):
        permission.require_named(OWN, {"env"})
    with pytest.raises(ValueError, match=r"^make_environments= of monobeast.train, for mine:make\(...\): must be"):
        permission.require_named(CALLS, {"network"})
