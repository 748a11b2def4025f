"""Films of played episodes: whole, in the game's colors, at its speed; and the table of episodes."""

import os

import numpy as np
import pytest
from command_lines import run
from csv_rows import rows_of
from saved_runs import save_run

from monobeast.film import Film

imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")

RATE = 15.0
# Colors of Atari's screens, the strongest of them.
COLORS = np.array([[236, 236, 236], [92, 186, 92], [144, 72, 17], [0, 0, 0], [200, 72, 72], [66, 72, 200]], np.uint8)
# What compression may change, in steps of 1/255.
TOLERANCE = 14


def read(path):
    """What ffmpeg says of a film, and its pictures."""
    frames = imageio_ffmpeg.read_frames(str(path))
    meta = next(frames)
    width, height = meta["size"]
    return meta, [np.frombuffer(frame, np.uint8).reshape(height, width, 3) for frame in frames]


def film(path, pictures):
    with Film(path, RATE) as one:
        for picture in pictures:
            one.add(picture)


@pytest.fixture(scope="module")
def catch_run(tmp_path_factory):
    savedir = tmp_path_factory.mktemp("runs")
    save_run(savedir, env="monobeast/Catch-v0")
    return savedir


def test_every_pixel_keeps_its_color(tmp_path):
    picture = COLORS[np.random.default_rng(0).integers(len(COLORS), size=(210, 160))]

    film(tmp_path / "film.mp4", [picture] * 3)

    meta, pictures = read(tmp_path / "film.mp4")
    assert (meta["size"], len(pictures)) == ((320, 420), 3)
    assert np.abs(pictures[1][::2, ::2].astype(int) - picture).max() <= TOLERANCE
    assert os.listdir(tmp_path) == ["film.mp4"]


def test_odd_sizes_are_films_too(tmp_path):
    film(tmp_path / "film.mp4", [np.zeros((401, 33, 3), np.uint8)])

    assert read(tmp_path / "film.mp4")[0]["size"] == (34, 402)


def test_a_film_that_fails_leaves_no_file(tmp_path):
    with pytest.raises(RuntimeError, match="in the middle"):
        with Film(tmp_path / "film.mp4", RATE) as one:
            one.add(np.zeros((210, 160, 3), np.uint8))
            raise RuntimeError("in the middle")

    assert os.listdir(tmp_path) == []


def test_test_films_every_episode_from_its_first_picture_to_its_last(catch_run, tmp_path, capfd):
    exit_code, output, errors = run(
        capfd, "test", "--savedir", catch_run, "--num_episodes", 2, "--video", tmp_path / "films", "--xpid", "example"
    )

    assert (exit_code, errors) == (0, "")
    assert f"films: {tmp_path / 'films'}" in output
    names = sorted(os.listdir(tmp_path / "films"))
    assert names == ["example-step-0-episode-1.mp4", "example-step-0-episode-2.mp4"]
    meta, pictures = read(tmp_path / "films" / names[1])
    assert (meta["fps"], len(pictures)) == (10, 10)  # Catch has nine steps
    ball_first, ball_last = (np.argwhere(picture[:, :, 0] > 127)[:, 0].min() for picture in pictures[::9])
    assert ball_first == 0 and ball_last > ball_first


def test_an_atari_game_is_filmed_in_its_own_colors_and_speed(tmp_path, capfd):
    save_run(tmp_path, env="ALE/Pong-v5")

    exit_code, output, _ = run(
        capfd, "test", "--savedir", tmp_path, "--num_episodes", 1, "--max_episode_steps", 5, "--video", tmp_path,
        "--xpid", "example",
    )

    assert exit_code == 0
    meta, pictures = read(tmp_path / "example-step-0-episode-1.mp4")
    assert (meta["fps"], meta["size"], len(pictures)) == (15, (320, 420), 6)
    background = pictures[-1][200, 100].astype(int)
    assert np.abs(background - (144, 72, 17)).max() <= TOLERANCE


def test_without_the_package_the_line_that_installs_it_is_said(catch_run, tmp_path, capfd, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "imageio_ffmpeg", None)

    exit_code, _, errors = run(capfd, "test", "--savedir", catch_run, "--video", tmp_path / "films")

    assert exit_code == 2
    assert f"--video {tmp_path / 'films'}: needs imageio-ffmpeg" in errors
    assert errors.endswith("python -m pip install imageio-ffmpeg\n") and errors.count("\n") == 1
    assert not (tmp_path / "films").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--video", "/dev/null/films"], "--video /dev/null/films: the folder cannot be made"),
        (
            ["--save_episodes", "/dev/null/a.csv"],
            "--save_episodes /dev/null/a.csv: must be a file in a folder that can be written to",
        ),
        (["--video", "films", "--render"], "--render --video films: exclude each other"),
    ],
)
def test_what_cannot_be_written_is_refused(catch_run, capfd, flags, message):
    exit_code, _, errors = run(capfd, "test", "--savedir", catch_run, "--xpid", "example", *flags)

    assert exit_code == 2
    assert message in errors and errors.count("\n") == 1


def test_an_agent_of_an_environment_without_pictures_is_not_filmed(tmp_path, capfd):
    save_run(tmp_path, env="monobeast/Memory-v0")

    exit_code, _, errors = run(
        capfd, "test", "--savedir", tmp_path, "--xpid", "example", "--video", tmp_path / "films"
    )

    assert exit_code == 2
    assert "--env monobeast/Memory-v0: has no pictures" in errors
    assert not (tmp_path / "films").exists()


def test_every_episode_is_a_row_of_the_table(catch_run, tmp_path, capfd):
    file = tmp_path / "episodes.csv"

    run(
        capfd, "test", "--savedir", catch_run, "--xpid", "example", "--num_episodes", 2,
        "--max_episode_steps", 4, "--save_episodes", file,
    )

    expected = {"episode_return": "0", "episode_length": "4", "is_capped": "1"}
    assert rows_of(file) == [{"episode": "1"} | expected, {"episode": "2"} | expected]
