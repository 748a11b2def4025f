"""Every `python -m monobeast` that stands alone on an indented line of README or docs runs, or is one that could.

It runs after a short training run of Catch, with flags that shorten what would take long. What a page leaves to the
reader (NAME, FILE, my_module) is made first. Of the ladder's commands, which train for minutes to hours, the flags are
read; `test_ladder` compares them with the recorded runs, and `test_extending` runs the commands of its page.
"""

import re
import shlex
from pathlib import Path

import pytest
import torch
import torchbeast_files
from command_lines import run

from monobeast.__main__ import _make_parser
from monobeast.config import Config

ROOT = Path(__file__).parent.parent
MOVING_OVER = ROOT / "docs" / "from_torchbeast.md"  # whose commands follow upon each other
EXTENDING = ROOT / "docs" / "extending.md"  # test_extending runs its commands, with its files
LADDER = ROOT / "docs" / "results.md"  # whose commands train for long
PAGES = [ROOT / "README.md", *sorted(set((ROOT / "docs").glob("*.md")) - {MOVING_OVER, EXTENDING, LADDER})]


def commands_of(pages):
    """What follows `python -m monobeast`, over all lines of a command."""
    text = re.sub(r" *\\\n +", " ", "\n".join(page.read_text() for page in pages))
    lines = re.findall(r"^    (?:PYTHONPATH=tests |\.venv/bin/)?python -m monobeast (.*)$", text, re.MULTILINE)
    return [re.split(r" +#", line)[0].strip() for line in lines]


CATCH = ["--env", "monobeast/Catch-v0", "--num_actors", "0", "--num_learner_threads", "1"]
SHORT = {
    "benchmark": [*CATCH, "--part_seconds", "0", "--seconds", "0.5", "--warm_up", "0", "--rounds", "1"],
    "test": ["--num_episodes", "1"],
    "train": ["--num_actors", "0", "--total_steps", "1600"],
    "--env": ["--num_actors", "0", "--total_steps", "400", "--num_learner_threads", "1"],
    "--network": [*CATCH, "--total_steps", "400"],
}
NEEDED = {
    **{"--video": "imageio_ffmpeg", "--onnx": "onnxscript", "plot": "matplotlib", "--baseline": "cv2"},
    **{"--tensorboard": "tensorboard", "--wandb": "wandb"},
}
EXIT_CODES = {"plan --num_buffers 100": (0, 1)}  # by what this machine has
MODULES = {
    "my_module.py": "import gymnasium\n"
    "from gymnasium.spaces import Discrete\n"
    "from monobeast.networks import make_network\n"
    "gymnasium.register('MyEnv-v0', 'gymnasium.envs.classic_control.cartpole:CartPoleEnv', max_episode_steps=50)\n"
    "def MyNet(observation_space, num_actions):\n"
    "    return make_network(observation_space, Discrete(num_actions))\n",
    "my_package/vtrace.py": "from monobeast.vtrace import from_importance_weights\n",
}


@pytest.fixture
def desk(tmp_path, monkeypatch, capfd):
    """A folder to work in, a home with a finished run, and what the pages take for granted."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, text in MODULES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert run(capfd, "train", *CATCH, "--xpid", "RUN", "--total_steps", "800", "--log_interval_s", "1e-6")[0] == 0
    return tmp_path


def words_of(command):
    """The command with what shortens it."""
    words = shlex.split(command.replace("RUN...", "RUN"))
    return words if "--help" in words else [*words, *SHORT.get(words[0], [])]


def with_marks(command):
    """A benchmark's several processes take seconds each to start: one is enough every time."""
    marks = [pytest.mark.slow] if re.match("benchmark .", command) else []
    return pytest.param(command, marks=marks, id=command)


@pytest.mark.parametrize(
    ("pages", "number"), [(PAGES[:1], 10), (PAGES[1:], 4), ([LADDER], 14)], ids=["README", "docs", "ladder"]
)
def test_commands_are_found_on_the_pages(pages, number):
    """A few less than there were when this was written; far fewer, if pages say them in another form."""
    assert len(commands_of(pages)) >= number


# One command may stand on a page twice.
@pytest.mark.parametrize("command", [with_marks(command) for command in dict.fromkeys(commands_of(PAGES))])
def test_a_command_of_a_page_runs(desk, capfd, command):
    if "NAME" in command:
        (desk / "logs/monobeast/RUN").rename(desk / "logs/monobeast/NAME")
    for word, package in NEEDED.items():
        if word in command.split():
            pytest.importorskip(package)

    exit_code, output, errors = run(capfd, *words_of(command))

    assert exit_code in EXIT_CODES.get(command, (0,)), errors
    assert output


@pytest.mark.parametrize("command", commands_of([LADDER]), ids=lambda command: re.search(r"--env (\S+)", command)[1])
def test_the_flags_of_a_command_of_the_ladder_are_those_of_a_run(command):
    name, *flags = shlex.split(command)
    settings = vars(_make_parser(name, flags_of="train").parse_args(flags))

    assert name == "train" and {"env", "seed", "total_steps", "preset"} <= settings.keys()
    assert len(settings) == sum(flag.startswith("--") for flag in flags)
    Config(**settings)


def test_the_commands_that_move_a_checkpoint_over_run_one_after_the_other(desk, capfd):
    torch.save(torchbeast_files.make_checkpoint()[-1], desk / "model.tar")
    short = [[], ["--num_episodes", "1", "--max_episode_steps", "5"], ["--total_steps", "1920"]]

    for command, flags in zip(commands_of([MOVING_OVER]), short, strict=True):
        exit_code, output, errors = run(capfd, *shlex.split(command), *flags)
        assert exit_code == 0, errors
        assert output
