"""A checkpoint that plays: whole games, unclipped rewards, recurrent state carried."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from monobeast import environments, film, seeding, window
from monobeast.config import Config
from monobeast.environments import Spaces, VectorEnvironment
from monobeast.episode import Episode, play_episode
from monobeast.files import user_path
from monobeast.film import Film
from monobeast.makers import Makers
from monobeast.networks import Network, load_weights
from monobeast.policy import LocalPolicy
from monobeast.runs import checkpoint, permission, run_folder
from monobeast.user_code import is_own
from monobeast.window import Window


class Player(NamedTuple):
    """A checkpoint ready to play."""

    folder: Path  # of the run
    config: Config  # the trained run's, with what the caller chose in its place
    environment: VectorEnvironment  # of one environment
    policy: LocalPolicy
    step: int  # agent steps it was trained for
    seed: int  # of the games and of the sampling


def load_player(chosen: dict[str, Any]) -> Player:
    """Loads the run `chosen["xpid"]` in `chosen["savedir"]`, or the newest run.

    Args:
        chosen: Settings that were given; the others are the run's.

    Raises:
        ValueError: no such run, no checkpoint, or one for another environment or network; the run has the user's own
            code that `chosen` does not name; a requested film cannot be made.
    """
    asked = Config(**chosen)
    if asked.video is not None:
        film.require_writer(asked.video)
    if asked.render:
        window.require_screen()
    folder = run_folder.find(asked.savedir, asked.xpid)
    content = _load_best(folder) if asked.best else checkpoint.load(folder)
    trained = checkpoint.read_config(content, folder)
    trained = permission.choose(trained, chosen.get("env"), chosen.get("network"), f"the checkpoint in {folder}")
    config = environments.resolve(_merge(trained, asked, chosen))
    spaces = environments.check(config)
    network = load_network(content, folder, config, spaces)
    seed = seeding.draw_seed() if asked.seed is None else asked.seed
    seeds = seeding.evaluation_seeds(seed, 1)
    environment = environments.make(config, 1, seeds, with_pictures=config.render or config.video is not None)
    if config.video is not None:
        _make_folder(config.video)
    policy = LocalPolicy(network.eval(), None, seeding.evaluation_sampling_seed(seed), greedy=config.greedy)
    return Player(folder, config, environment, policy, content["learner"]["step"], seed)


def _load_best(folder: Path) -> dict[str, Any]:
    try:
        return checkpoint.read(folder / checkpoint.BEST_FILE_NAME)
    except ValueError as error:
        raise ValueError(f"--best: {error}; it is of runs with --evaluate_every") from error


def load_network(content: dict[str, Any], folder: Path, config: Config, spaces: Spaces) -> Network:
    """The network of a checkpoint, on the CPU.

    Args:
        content: The checkpoint's.
        folder: Of the checkpoint, for messages.
        config: The run's.
        spaces: Of its environment.

    Raises:
        ValueError: it is for other spaces, or for another network than the user's own.
    """
    network = Makers().make_network(config, spaces)
    try:
        load_weights(network, content["learner"]["network"])
    except ValueError as error:
        if is_own(config.network):
            raise ValueError(f"--network {config.network}: not that of the checkpoint in {folder}: {error}") from error
        raise ValueError(
            f"the checkpoint in {folder} is for another environment than {config.env} with "
            f"actions {spaces.action} and observations {spaces.observation}: {error}"
        ) from error
    return network


def _merge(trained: Config, asked: Config, chosen: dict[str, Any]) -> Config:
    """The run's settings, with those of the test as requested, and those of the environment if given."""
    groups = {setting.name: setting.metadata["group"] for setting in dataclasses.fields(Config)}
    changes = {name: value for name, value in chosen.items() if groups[name] == "environment"}
    changes |= {name: getattr(asked, name) for name, group in groups.items() if group == "test"}
    changes["life_loss_terminal"] = False  # unlike in training, a game goes on to its end
    return dataclasses.replace(trained, **changes)


def _make_folder(video: str) -> None:
    try:
        user_path(video).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--video {video}: the folder cannot be made: {error.strerror}") from None


def play(player: Player) -> Iterator[Episode]:
    """Plays `num_episodes` games and yields each as it ends; shows or films them according to `render` and `video`.

    Raises:
        WindowClosed: the user closed the window.
    """
    with _open_window(player) as shown:
        for number in range(1, player.config.num_episodes + 1):
            with _filming(player, number) as filmed:
                watch = shown or filmed  # these exclude each other
                episode = play_episode(player.environment, player.policy, player.config.max_episode_steps, watch)
            yield episode


@contextmanager
def _open_window(player: Player) -> Iterator[Callable[[], None] | None]:
    """The function that shows a picture of the game, if requested."""
    if not player.config.render:
        yield None
        return
    title = f"{player.folder.name}: {player.config.env}"
    with Window(title, player.environment.frames_per_second) as opened:
        yield lambda: opened.add(player.environment.picture())


@contextmanager
def _filming(player: Player, number: int) -> Iterator[Callable[[], None] | None]:
    """The function that adds a picture to an episode's film, if requested."""
    if player.config.video is None:
        yield None
        return
    # With the run and the step it was at, films of several fit in one folder.
    name = f"{player.folder.name}-step-{player.step}-episode-{number}.mp4"
    with Film(user_path(player.config.video) / name, player.environment.frames_per_second) as reel:
        yield lambda: reel.add(player.environment.picture())
