"""Going on with a run: what stays, what may change, what is refused."""

import dataclasses
import itertools
import json
import os

import pytest
import torch
from csv_rows import rows_of
from saved_runs import save_run

from monobeast import autotuning, preparation, seeding, training
from monobeast.runs import checkpoint, resumption, run_folder
from monobeast.__main__ import run_command
from monobeast.config import Config
from monobeast.environments.catch import Catch
from monobeast.runs.csv_file import CsvFile
from monobeast.training import train

SETTINGS = {
    **{"env": "monobeast/Catch-v0", "num_actors": 0, "seed": 3, "xpid": "run"},
    **{"envs_per_actor": 2, "batch_size": 2, "log_interval_s": 0.01, "num_learner_threads": 1},
}


def begin(tmp_path, **settings):
    return train(Config(**SETTINGS | {"total_steps": 400, "savedir": str(tmp_path)} | settings))


def go_on(tmp_path, **settings):
    return train(Config(resume=True, xpid="run", savedir=str(tmp_path), **settings))


def test_a_resumed_run_goes_on_from_its_checkpoint(tmp_path):
    folder = begin(tmp_path).folder
    before = checkpoint.load(folder)

    result = go_on(tmp_path, total_steps=800)

    after = checkpoint.load(folder)
    assert (result.state, result.step) == ("complete", 800)
    assert after["learner"]["num_updates"] == 2 * before["learner"]["num_updates"] == 40
    optimizer = after["learner"]["optimizer"]["state"]
    assert all(state["step"] == 40 for state in optimizer.values())  # its averages went on
    assert after["log"]["num_episodes"] > before["log"]["num_episodes"]
    assert after["log"]["seconds"] > before["log"]["seconds"]
    assert (before["num_resumes"], after["num_resumes"]) == (0, 1)


def test_the_learning_rate_goes_on_where_its_line_is(tmp_path):
    folder = begin(tmp_path, learning_rate=0.5).folder
    go_on(tmp_path, total_steps=800)

    rates = {int(row["step"]): float(row["learning_rate"]) for row in rows_of(folder / "logs.csv")}

    assert rates[400] == 0 and rates[420] == pytest.approx(0.5 * 380 / 800) and rates[800] == 0


def test_files_go_on_with_one_header_and_rising_steps(tmp_path):
    folder = begin(tmp_path).folder
    before = {name: rows_of(folder / name) for name in ("logs.csv", "episodes.csv")}

    go_on(tmp_path, total_steps=800)

    for name, rows in before.items():
        after = rows_of(folder / name)
        steps = [int(row["step"]) for row in after]
        assert after[: len(rows)] == rows and len(after) > len(rows)
        assert steps == sorted(steps) and steps[-1] > 400
    assert [int(row["episodes"]) for row in rows_of(folder / "logs.csv")][-1] == len(rows_of(folder / "episodes.csv"))
    assert "resumed at step 400" in (folder / "out.log").read_text()


def test_rows_beyond_the_checkpoint_and_a_half_written_line_are_dropped(tmp_path):
    path = tmp_path / "logs.csv"
    path.write_bytes(b"step,loss\n10,1.5\n20,2.5\n30,3.5\n40,4.\n" b"4")

    file = CsvFile(path, ("step", "loss"), up_to_step=30)
    file.write((50, None))
    file.close()

    assert path.read_text().splitlines() == ["step,loss", "10,1.5", "20,2.5", "30,3.5", "50,"]


@pytest.mark.parametrize("end", [b"\0\0\0\0", b"\0\0\n", b"x,y\n", b'"30', b"\xff\xfe\n"])
def test_a_damaged_end_of_a_file_is_dropped(tmp_path, end):
    path = tmp_path / "logs.csv"
    path.write_bytes(b"step,loss\n10,1.5\n" + end)

    CsvFile(path, ("step", "loss"), up_to_step=30).close()

    assert path.read_text().splitlines() == ["step,loss", "10,1.5"]


@pytest.mark.parametrize("after", ["", "x" * 200_000])
def test_a_stray_quotation_mark_takes_no_other_row_along(tmp_path, after):
    path = tmp_path / "logs.csv"
    path.write_text(f'step,loss\n10,1.5\n"20,2.5{after}\n30,3.5\n')

    CsvFile(path, ("step", "loss"), up_to_step=30).close()

    assert path.read_text().splitlines() == ["step,loss", "10,1.5", "30,3.5"]


def test_columns_that_came_since_are_empty_in_the_rows_before(tmp_path):
    path = tmp_path / "logs.csv"
    path.write_text("step,loss,gone\n10,1.5,7\n")

    CsvFile(path, ("step", "new", "loss"), up_to_step=30).close()

    assert path.read_text().splitlines() == ["step,new,loss", "10,,1.5"]


def test_a_file_that_was_lost_begins_anew(tmp_path):
    folder = begin(tmp_path).folder
    (folder / "episodes.csv").unlink()
    (folder / "meta.json").write_text("{")

    go_on(tmp_path, total_steps=800)

    assert min(int(row["step"]) for row in rows_of(folder / "episodes.csv")) > 400
    assert json.loads((folder / "meta.json").read_text())["history"] == []


def test_changes_are_printed_and_recorded_and_all_else_is_as_it_was(tmp_path):
    folder = begin(tmp_path, entropy_cost=0.5, learning_rate=0.25).folder

    go_on(tmp_path, total_steps=800, learning_rate=0.125, num_actors=1)
    go_on(tmp_path, total_steps=900)

    meta = json.loads((folder / "meta.json").read_text())
    config = meta["config"]
    assert (config["entropy_cost"], config["learning_rate"], config["seed"]) == (0.5, 0.125, 3)
    assert (config["num_actors"], config["num_buffers"]) == (1, 2)  # chosen for one actor
    assert meta["changes"] == {"total_steps": [800, 900]} and meta["resumed_from_step"] == 800
    first, second = meta["history"]
    assert first["step"] == 400 and "changes" not in first
    given = {"total_steps": [400, 800], "learning_rate": [0.25, 0.125], "num_actors": [0, 1]}
    assert second["changes"].items() >= given.items()
    assert "--learning_rate: 0.125, was 0.25" in (folder / "out.log").read_text()


def test_what_is_chosen_anew_for_other_actors_is_a_change_as_well(tmp_path):
    folder = begin(tmp_path, num_actors=1, num_buffers=7).folder

    go_on(tmp_path, total_steps=800, num_actors=3)

    meta = json.loads((folder / "meta.json").read_text())
    assert meta["changes"]["num_buffers"] == [7, 6] == [7, meta["config"]["num_buffers"]]
    assert "--num_buffers: 6, was 7" in (folder / "out.log").read_text()


@pytest.mark.parametrize(
    "change",
    [
        {"env": "CartPole-v1"},
        {"network": "deep"},
        {"use_lstm": True},
        {"optimizer": "adam"},
        {"momentum": 0.5},
        {"seed": 4},
        {"preset": "paper"},
    ],
    ids=str,
)
def test_what_cannot_change_is_refused_by_name(tmp_path, change):
    folder = begin(tmp_path).folder
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    ((name, value),) = change.items()

    with pytest.raises(ValueError, match=f"--{name} {value}: cannot change on --resume; the run began with "):
        go_on(tmp_path, **change)

    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_space_that_has_changed_is_refused(tmp_path):
    settings = {"env": "stub_environments:Echo-v0", "network": "mlp"}
    begin(tmp_path, **settings)
    content = checkpoint.load(tmp_path / "run")
    content["learner"]["network"]["policy.bias"] = torch.zeros(17)
    checkpoint.save(tmp_path / "run", content)

    with pytest.raises(ValueError, match="--resume: the weights of run do not fit the spaces of stub_"):
        go_on(tmp_path, total_steps=800, env=settings["env"])


def test_a_value_that_is_given_counts_even_where_it_is_the_default():
    saved = Config(preset="classic", total_steps=5, checkpoint_interval_s=1.0, seed=1)
    asked = Config(resume=True, xpid="run")

    config, changes = resumption.merge(saved, asked, given={"resume", "xpid", "total_steps"})

    assert config.total_steps == Config().total_steps and config.checkpoint_interval_s == 1.0
    assert changes == {"total_steps": (5, Config().total_steps)}


def test_slots_are_counted_against_the_actors_of_the_run():
    saved = Config(preset="classic", num_actors=1, num_buffers=2)

    config, _ = resumption.merge(saved, Config(resume=True, xpid="run", num_buffers=1))
    assert (config.num_actors, config.num_buffers) == (1, 1)
    with pytest.raises(ValueError, match="--num_buffers 2: must be at least --num_actors 3, one slot per actor"):
        resumption.merge(saved, Config(resume=True, xpid="run", num_actors=3, num_buffers=2))


def test_a_run_that_began_on_a_gpu_goes_on_without():
    saved = Config(preset="classic", device="cuda:0")

    config, changes = resumption.merge(saved, Config(resume=True, xpid="run", disable_cuda=True))

    assert config.device == "cpu" and changes["device"] == ("cuda:0", "cpu")


@pytest.mark.parametrize("flags", [[], ["--num_actors", "auto", "--envs_per_actor", "auto"]])
def test_a_complete_run_ends_at_once(tmp_path, capsys, flags):
    folder = begin(tmp_path).folder
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "out.log"}

    assert run_command(["train", "--resume", "--xpid", "run", "--savedir", str(tmp_path), *flags]) == 0

    output, errors = capsys.readouterr()
    assert "already complete at step 400" in output and errors == ""  # nothing was measured
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "out.log"} == before


def test_a_preset_that_is_named_again_leaves_the_runs_own_settings(tmp_path):
    saved = Config(preset="classic", learning_rate=5e-4, batch_size=2, optimizer="adam", xpid="run")

    merged, changes = resumption.merge(saved, Config(resume=True, xpid="run", preset="classic", total_steps=5))

    assert (merged.learning_rate, merged.batch_size, merged.optimizer) == (5e-4, 2, "adam")
    assert changes.keys() == {"total_steps"}


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_what_is_given_for_the_optimizer_is_what_it_goes_on_with(tmp_path, optimizer):
    folder = begin(tmp_path, optimizer=optimizer).folder

    go_on(tmp_path, total_steps=800, epsilon=0.5, **({"alpha": 0.25} if optimizer == "rmsprop" else {}))

    (group,) = checkpoint.load(folder)["learner"]["optimizer"]["param_groups"]
    assert (group["eps"], group.get("alpha", 0.25)) == (0.5, 0.25)


def test_weights_alone_are_no_run_to_go_on_with(tmp_path):
    folder = begin(tmp_path, evaluate_every=200, evaluate_episodes=1).folder
    (folder / "best.pt").replace(folder / "checkpoint.pt")

    with pytest.raises(ValueError, match="^--resume: the checkpoint in .* holds weights alone, as best.pt does: test"):
        go_on(tmp_path, total_steps=800)


def test_a_run_that_another_process_took_further_since_the_checkpoint_was_read_is_left_alone(tmp_path):
    folder = begin(tmp_path).folder
    late = preparation.prepare(Config(resume=True, xpid="run", savedir=str(tmp_path), total_steps=1200))
    go_on(tmp_path, total_steps=800)
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "out.log"}

    with pytest.raises(ValueError, match="^--xpid run: another process has taken the run from step 400 to 800 mean"):
        training.run(late)

    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "out.log"} == before


def test_a_resumed_run_that_is_stopped_before_its_first_update_is_kept(tmp_path, monkeypatch):
    folder = save_run(tmp_path, "run", env="monobeast/Catch-v0")  # at step 0, as an import is
    monkeypatch.setattr(training.Session, "train", lambda self: "stopped")

    assert go_on(tmp_path).state == "stopped"
    assert (folder / "checkpoint.pt").exists()


def test_fewer_steps_than_a_run_has_are_not_taken_for_a_complete_run(tmp_path, capsys):
    begin(tmp_path)
    path = tmp_path / "run" / "checkpoint.pt"
    content = torch.load(path, weights_only=True)
    content["config"]["total_steps"] = 1000  # of which it has 400
    torch.save(content, path)

    assert run_command(["train", "--resume", "--xpid", "run", "--savedir", str(tmp_path), "--total_steps", "300"]) == 2

    assert "--total_steps 300: must be more than 400, the step that the run is at" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--xpid", "never"], "--xpid never: no run at "),
        ([], "--resume: needs --xpid"),
    ],
)
def test_resume_without_a_run_is_an_error(tmp_path, capsys, flags, message):
    assert run_command(["train", "--resume", "--savedir", str(tmp_path), *flags]) == 2
    errors = capsys.readouterr().err
    assert message in errors and f"python -m monobeast ls {tmp_path} lists" in errors


def test_a_run_without_a_checkpoint_is_an_error(tmp_path, capsys):
    (tmp_path / "run").mkdir()

    assert run_command(["train", "--resume", "--savedir", str(tmp_path), "--xpid", "run"]) == 2
    assert f"no checkpoint at {tmp_path / 'run' / 'checkpoint.pt'}" in capsys.readouterr().err


def test_a_name_in_use_without_resume_is_an_error(tmp_path):
    begin(tmp_path)

    with pytest.raises(ValueError, match="--xpid run: in use, .* continue it with --resume"):
        begin(tmp_path)


def test_two_processes_do_not_train_in_one_folder(tmp_path):
    folder = begin(tmp_path).folder

    with run_folder.held(folder), pytest.raises(ValueError, match="--xpid run: another process is training in"):
        go_on(tmp_path, total_steps=800)

    assert go_on(tmp_path, total_steps=800).step == 800


def test_no_seed_of_an_earlier_start_comes_again():
    seeds = [
        seed
        for resumes in range(4)
        for generation in range(3)
        for seed in seeding.environment_seeds(7, 0, seeding.first_generation(resumes) + generation, 4)
    ]

    assert len(set(seeds)) == len(seeds)


def test_a_resumed_run_draws_other_episodes_than_its_first_start(tmp_path, monkeypatch):
    """What a ball's column is depends on the seeds alone, where returns depend on the policy as well."""
    intact, drawn = Catch.reset, {}

    def note_column(env, *, seed=None, options=None):
        observation, info = intact(env, seed=seed)
        drawn.setdefault(env, []).append(env.get_state()["ball"][1])
        return observation, info

    def columns_of(start, folder, **settings):
        drawn.clear()
        start(folder, **settings)
        return [columns for columns in drawn.values() if len(columns) > 1]  # others were made to see the spaces

    monkeypatch.setattr(Catch, "reset", note_column)
    first, again = (columns_of(begin, tmp_path / name) for name in ("one", "two"))
    resumed = columns_of(go_on, tmp_path / "one", total_steps=800)

    assert first == again
    assert [len(columns) for columns in [*first, *resumed]] == [21] * 4  # the last has just begun
    assert all(one != other for one, other in itertools.product(first, resumed))


def test_counters_past_31_bits_go_on(tmp_path):
    folder = begin(tmp_path, total_steps=2**33, max_seconds=0.2).folder
    content = checkpoint.load(folder)
    content["learner"]["step"] = content["log"]["step"] = 2_147_483_600
    checkpoint.save(folder, content)

    result = go_on(tmp_path, total_steps=2_147_484_600, max_seconds=1000.0)

    steps = [int(row["step"]) for row in rows_of(folder / "logs.csv")]
    assert result.step == steps[-1] == checkpoint.load(folder)["learner"]["step"] == 2_147_484_600
    assert steps == sorted(steps)


def test_the_settings_that_were_given_are_kept_out_of_what_names_the_run():
    saved = Config(preset="classic", xpid="old", savedir="there")
    config, changes = resumption.merge(saved, Config(resume=True, xpid="new", savedir="here"))

    assert (config.xpid, config.savedir, config.resume, changes) == ("new", "here", True, {})
    assert dataclasses.replace(config, xpid="old", savedir="there", resume=False) == saved


def test_a_damaged_checkpoint_is_said_and_the_one_before_is_used(tmp_path, caplog):
    checkpoint.save(tmp_path, {"step": 1})
    checkpoint.save(tmp_path, {"step": 2})
    path = tmp_path / checkpoint.FILE_NAME
    os.truncate(path, path.stat().st_size // 2)

    assert checkpoint.load(tmp_path)["step"] == 1
    assert f"{path} is not a checkpoint" in caplog.text and checkpoint.PREVIOUS_FILE_NAME in caplog.text


def test_what_auto_chooses_on_resume_is_what_is_recorded_as_changed(tmp_path, capsys, monkeypatch):
    folder = begin(tmp_path).folder
    before = json.loads((folder / "meta.json").read_text())["config"]
    chosen = (autotuning.Sizes(1, 2 * before["envs_per_actor"], 1), "told")
    monkeypatch.setattr(autotuning, "_look_up_or_measure", lambda *_: chosen)

    flags = ["--num_actors", "auto", "--envs_per_actor", "auto", "--total_steps", "800"]
    assert run_command(["train", "--resume", "--xpid", "run", "--savedir", str(tmp_path), *flags]) == 0

    changes = json.loads((folder / "meta.json").read_text())["changes"]
    assert changes["num_actors"] == [before["num_actors"], 1]
    assert changes["envs_per_actor"] == [before["envs_per_actor"], 2 * before["envs_per_actor"]]
    assert "None" not in capsys.readouterr().out
