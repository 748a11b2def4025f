"""`test --render`: a window, on a screen that nobody sees."""

import numpy as np
import pytest
from command_lines import run
from saved_runs import save_run

from monobeast import window
from monobeast.window import Window, WindowClosed

pygame = pytest.importorskip("pygame")


@pytest.fixture(autouse=True)
def dummy_screen(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    pygame.display.quit()
    yield
    pygame.display.quit()


@pytest.fixture
def shown(monkeypatch):
    """What is on the screen each time a picture has been shown: title and pixels [height, width, 3]."""
    seen, flip = [], pygame.display.flip

    def look():
        flip()
        pixels = pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1)
        seen.append((pygame.display.get_caption()[0], pixels))

    monkeypatch.setattr(pygame.display, "flip", look)
    return seen


@pytest.mark.parametrize(("shape", "factor"), [((210, 160, 3), 2), ((400, 600, 3), 1), ((5, 7, 3), 80)])
def test_a_picture_is_shown_pixel_by_pixel_large_enough_to_see(shown, shape, factor):
    picture = np.random.default_rng(0).integers(256, size=shape, dtype=np.uint8)

    with Window("title", frames_per_second=1e6) as opened:
        opened.add(picture)

    ((title, pixels),) = shown
    assert title == "title"
    assert np.array_equal(pixels, picture.repeat(factor, axis=0).repeat(factor, axis=1))
    assert not pygame.display.get_init()  # it is closed


def test_pictures_wait_for_their_time(monkeypatch):
    ticks = []
    monkeypatch.setattr(pygame.time, "Clock", lambda: type("Clock", (), {"tick": lambda _, rate: ticks.append(rate)})())

    with Window("title", frames_per_second=15.0) as opened:
        for _ in range(3):
            opened.add(np.zeros((4, 4, 3), np.uint8))

    assert ticks == [15.0] * 3


def test_a_window_that_is_closed_says_so():
    with Window("title", frames_per_second=1e6) as opened:
        opened.add(np.zeros((4, 4, 3), np.uint8))
        pygame.event.post(pygame.event.Event(pygame.QUIT))
        with pytest.raises(WindowClosed):
            opened.add(np.zeros((4, 4, 3), np.uint8))


@pytest.mark.parametrize(
    ("env", "steps", "size"), [("monobeast/Catch-v0", 27_000, None), ("ALE/Pong-v5", 5, (420, 320, 3))]
)
def test_a_game_is_shown_from_its_first_picture_to_its_last(tmp_path, capfd, shown, env, steps, size):
    save_run(tmp_path, env=env)

    exit_code, output, errors = run(
        capfd, "test", "--savedir", tmp_path, "--xpid", "example", "--num_episodes", 1, "--render",
        "--max_episode_steps", steps,
    )  # fmt: skip

    assert (exit_code, errors) == (0, "") and "return over 1 episode:" in output
    assert len(shown) == (10 if env == "monobeast/Catch-v0" else steps + 1)  # Catch has nine steps
    assert {title for title, _ in shown} == {f"example: {env}"}
    assert size is None or shown[0][1].shape == size


def test_closing_the_window_ends_the_test_with_the_episodes_that_were_played(tmp_path, capfd, shown, monkeypatch):
    save_run(tmp_path, env="monobeast/Catch-v0")
    get = pygame.event.get
    monkeypatch.setattr(
        pygame.event, "get", lambda: [*get(), *([pygame.event.Event(pygame.QUIT)] if len(shown) == 15 else [])]
    )

    exit_code, output, errors = run(
        capfd, "test", "--savedir", tmp_path, "--xpid", "example", "--num_episodes", 9, "--render"
    )

    assert (exit_code, errors) == (0, "")
    assert "episode 1:" in output and "episode 2:" not in output and "return over 1 episode:" in output


def test_without_the_package_the_line_that_installs_it_is_said(tmp_path, capfd, monkeypatch):
    save_run(tmp_path, env="monobeast/Catch-v0")
    monkeypatch.setitem(__import__("sys").modules, "pygame", None)

    exit_code, _, errors = run(capfd, "test", "--savedir", tmp_path, "--xpid", "example", "--render")

    assert exit_code == 2 and errors.count("\n") == 1
    assert "--render: needs pygame" in errors and errors.endswith("python -m pip install pygame-ce\n")


def test_a_driver_that_nobody_asked_for_and_nobody_sees_is_refused(monkeypatch):
    monkeypatch.delenv("SDL_VIDEODRIVER")
    monkeypatch.setattr(pygame.display, "get_driver", lambda: "offscreen")
    monkeypatch.setattr(pygame.display, "init", lambda: None)

    with pytest.raises(ValueError, match="^--render: there is no screen here; --video DIR makes a film$"):
        window.require_screen()


def test_without_a_screen_that_is_said(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "nonsense")

    with pytest.raises(ValueError, match="--render: no window can be opened here .*; --video DIR makes a film"):
        window.require_screen()
