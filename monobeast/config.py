"""Every setting of a run: the single source of flags, defaults, help and checks.

Imports neither torch nor gymnasium, so that `--help` and a refusal of a bad value come at once.
"""

import dataclasses
import json
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from monobeast.presets import PRESETS
from monobeast.user_code import is_own

NETWORKS = ("auto", "shallow", "deep", "mlp", "torchbeast")
_OWN = "module:Class"  # among choices: whatever has that form
AUTO = ("num_actors", "envs_per_actor", "num_learner_threads")  # chosen by a measurement where they are left open

_T = TypeVar("_T")
if TYPE_CHECKING:
    Chosen = Annotated[_T, "None until the preset, the environment or the machine is known"]
else:

    class Chosen:
        """A setting that may be left open: None until the preset, the environment or the machine is known."""

        def __class_getitem__(cls, kind: type) -> Any:
            return kind | None


def _flag(default: Any, group: str, help: str, **limits: Any) -> Any:
    """A field of `Config`; `limits` are those of `_check_value`."""
    return field(default=default, metadata={"group": group, "help": help, **limits})


def _check_value(
    name: str,
    value: Any,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    choices: tuple[str, ...] = (),
) -> None:
    """Raises ValueError, naming flag, value and range, unless low <= value <= high and above < value."""
    names_own = _OWN in choices and re.fullmatch(r"[^\s:]+:[^\s:]+", str(value))
    if choices and value not in choices and not names_own:
        raise ValueError(f"--{name} {value}: must be one of {', '.join(choices)}")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return
    bounds = [
        (low, "at least", lambda bound: value >= bound),
        (above, "above", lambda bound: value > bound),
        (high, "at most", lambda bound: value <= bound),
    ]
    wanted = " and ".join(f"{word} {bound:g}" for bound, word, _ in bounds if bound is not None)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"--{name} {value}: must be a finite number" + (f", {wanted}" if wanted else ""))
    if not all(holds(bound) for bound, _, holds in bounds if bound is not None):
        raise ValueError(f"--{name} {value}: must be {wanted}")


@dataclass(frozen=True)
class Config:
    """Settings of one run, checked when made.

    Every field is a command-line flag of the same name. `None` in a field that is `Chosen` means "chosen for the
    environment or the machine": `preparation.prepare` replaces it, and what it chose is recorded; elsewhere it means
    "none". What belongs to a preset is filled in as soon as the preset is known: here where it is named.

    Raises:
        ValueError: a value out of its range, or two that do not fit each other; the message names the flag, the
            value and the range.
    """

    # fmt: off
    env: str = _flag("ALE/Pong-v5", "run", "Gymnasium id; module:Id imports the module first")
    preset: Chosen[str] = _flag(None, "run", "named set of defaults for the settings that are not given (default: for Atari atari, with --use_lstm atari_lstm; else classic)", choices=tuple(PRESETS))
    xpid: Chosen[str] = _flag(None, "run", "name of the run's folder in savedir (default: from the date and time)")
    resume: bool = _flag(False, "run", "continue the run named by --xpid from its checkpoint; settings that are given replace the run's own")
    exact_resume: bool = _flag(False, "run", "keep the state of environments and sampling in every checkpoint, so that --resume continues bit by bit as if the run had not been stopped; only with --num_actors 0, and not for Atari")
    savedir: str = _flag("~/logs/monobeast", "run", "folder of all runs")
    total_steps: int = _flag(10_000_000, "run", "agent steps to learn from, reset steps included; learning rate and entropy cost follow their schedules up to there", low=1)
    max_seconds: float | None = _flag(None, "run", "seconds after which the run ends cleanly (default: no limit)", above=0)
    stall_timeout_s: float = _flag(900.0, "run", "seconds without an update after which the run reports what every process is doing, and fails", above=0)
    seed: Chosen[int] = _flag(None, "run", "seed of networks, environments and sampling (default: drawn and recorded)", low=0, high=2**63 - 1)
    log_interval_s: float = _flag(5.0, "run", "seconds between two rows of logs.csv", above=0)
    checkpoint_interval_s: float = _flag(600.0, "run", "seconds between two checkpoints", above=0)
    evaluate_every: int | None = _flag(None, "run", "agent steps between two evaluations of the newest weights, in a process of its own beside training: adds a row to evaluations.csv, keeps the best weights in best.pt (default: none)", low=1)
    evaluate_episodes: int = _flag(10, "run", "episodes of an evaluation, played as test plays them", low=1)
    tensorboard: bool = _flag(False, "run", "also write the numbers of logs.csv and evaluations.csv for TensorBoard, in the run's folder; needs tensorboard")
    wandb: bool = _flag(False, "run", "also send the numbers of logs.csv and evaluations.csv to Weights & Biases, or keep them in the run's folder if nobody is logged in; needs wandb")
    timeline: str | None = _flag(None, "run", "file for a Chrome trace of what all processes do, over 5 seconds of the run (default: none)")
    disable_checkpoint: bool = _flag(False, "run", "save no checkpoint")

    num_actors: Chosen[int] = _flag(None, "actors", "actor processes; with 0 the learner's own process collects rollouts, and the run is repeatable (default: auto, the fastest as measured on this machine)", low=0)
    envs_per_actor: Chosen[int] = _flag(None, "actors", "E: environments per actor, which share one forward pass (default: the preset's, else auto)", low=1)
    unroll_length: Chosen[int] = _flag(None, "actors", "T: steps of a rollout (default: the preset's)", low=1)
    num_buffers: Chosen[int] = _flag(None, "actors", "slots of shared memory, each for a rollout of E trajectories (default: 2 per actor)", low=1)
    actor_timeout_s: float = _flag(300.0, "actors", "seconds without an answer after which an actor that holds a slot, or an evaluator at work, is replaced", above=0)
    max_actor_restarts: int = _flag(10, "actors", "most replacements of failed actors within an hour, before the run fails; the same limit holds for the evaluator, without which training goes on", low=0)
    start_method: str = _flag("forkserver", "actors", "how actor processes start", choices=("forkserver", "spawn"))

    batch_size: Chosen[int] = _flag(None, "learner", "B: trajectories per update; one of B and E must divide the other (default: the preset's)", low=1)
    optimizer: Chosen[str] = _flag(None, "learner", "rmsprop or adam (default: the preset's)", choices=("rmsprop", "adam"))
    learning_rate: Chosen[float] = _flag(None, "learner", "learning rate at the start (default: the preset's)", above=0)
    learning_rate_schedule: str = _flag("linear", "learner", "linear: the learning rate falls to 0 at total_steps, as in the paper; constant: it stays as it is", choices=("linear", "constant"))
    alpha: Chosen[float] = _flag(None, "learner", "RMSProp smoothing constant (default: the preset's)", low=0, high=1)
    momentum: Chosen[float] = _flag(None, "learner", "RMSProp momentum (default: the preset's)", low=0)
    epsilon: Chosen[float] = _flag(None, "learner", "added to the square root of RMSProp's or Adam's average of squared gradients (default: the preset's)", above=0)
    rmsprop_start: Chosen[float] = _flag(None, "learner", "where RMSProp's average of squared gradients starts: 0 as in PyTorch, 1 as in TensorFlow (default: the preset's)", low=0)
    grad_norm_clipping: Chosen[float] = _flag(None, "learner", "global norm to which gradients are clipped (default: the preset's)", above=0)
    max_bad_updates: int = _flag(10, "learner", "the run fails after this many updates in a row with a number that is not finite; each of them is left out", low=1)
    force_lag: int = _flag(0, "learner", "updates by which weights reach the actors late, to show what lag does; with --num_actors 0 and a --batch_size of at least E, the lag is exactly this", low=0, high=100_000)
    num_learner_threads: Chosen[int] = _flag(None, "learner", "torch threads of the learner (default: auto)", low=1)
    compile: bool = _flag(False, "learner", "let torch.compile make one program of the forward pass and the loss, in the first update, which then takes 3 to 30 seconds longer; a CPU needs a C++ compiler for it")
    device: Chosen[str] = _flag(None, "learner", "cpu, cuda or cuda:N (default: cuda where there is one)")
    disable_cuda: bool = _flag(False, "learner", "learn on the CPU even where there is a GPU")

    discounting: Chosen[float] = _flag(None, "loss", "gamma: discount factor per agent step (default: the preset's)", low=0, high=1)
    baseline_cost: Chosen[float] = _flag(None, "loss", "weight of the baseline loss (default: the preset's)", low=0)
    entropy_cost: Chosen[float] = _flag(None, "loss", "weight of the entropy loss at the start (default: the preset's)", low=0)
    entropy_cost_end: float | None = _flag(None, "loss", "weight of the entropy loss at total_steps, reached linearly (default: the preset's; where it has none, entropy_cost)", low=0)
    reward_clipping: str = _flag("auto", "loss", "what the learner does to rewards: abs_one clips to [-1, 1]; soft_asymmetric: 0.3 min(tanh r, 0) + 5 max(tanh r, 0); auto: abs_one for Atari, else none", choices=("auto", "abs_one", "none", "soft_asymmetric"))
    normalize_rewards: bool = _flag(False, "loss", "after the clip, divide rewards by the standard deviation of all discounted returns so far, and clip them to [-10, 10]")
    reward_scale: float = _flag(1.0, "loss", "what the learner multiplies rewards by, after clipping and normalization", above=0)
    correction: str = _flag("vtrace", "loss", "how the policy's lag is corrected for: vtrace, or one of what table 2 of the paper compares it with: one_step, epsilon, none", choices=("vtrace", "one_step", "epsilon", "none"))
    clip_rho_threshold: float | None = _flag(1.0, "loss", "rho-bar: clip of the importance weights in V-trace's targets; none for no clip", low=0)
    clip_pg_rho_threshold: float | None = _flag(1.0, "loss", "clip of the importance weights in the policy gradient; none for no clip", low=0)
    clip_c_threshold: float | None = _flag(1.0, "loss", "c-bar: clip of the importance weights in V-trace's traces; none for no clip", low=0)
    vtrace_lambda: float = _flag(1.0, "loss", "lambda: factor of c in V-trace's traces (remark 2 of the paper)", low=0, high=1)

    network: str = _flag("auto", "network", "shallow, deep: convolutions for images; mlp: fully connected layers; torchbeast: what import-torchbeast needs; module:Class: one of your own, imported from there (docs/extending.md); auto: by the observation's shape", choices=(*NETWORKS, _OWN))
    use_lstm: bool = _flag(False, "network", "an LSTM between the features and the heads")
    normalize_observations: bool = _flag(False, "network", "subtract the mean from float observations other than images and divide by the standard deviation, both over all that was learned from, and clip to [-10, 10]")
    precision: str = _flag("float32", "network", "number type in which the network multiplies, in actors and learner; weights, heads and losses are float32 in either case", choices=("float32", "bfloat16"))
    memory_format: str = _flag("channels_last", "network", "memory layout of images in convolutions: channels_last, faster on a CPU, or contiguous, channels first", choices=("channels_last", "contiguous"))

    frame_skip: int = _flag(4, "environment", "Atari: frames an action is repeated", low=1, high=1000)
    noop_max: int = _flag(30, "environment", "Atari: most no-op actions after a reset", low=0, high=10_000)
    sticky_actions: Chosen[float] = _flag(None, "environment", "Atari: probability that the last action is repeated (default: by the id, 0.25 for v5 and v0, 0 for v4)", low=0, high=1)
    full_action_space: Chosen[bool] = _flag(None, "environment", "Atari: all 18 actions (default: by the id)")
    max_episode_frames: int = _flag(108_000, "environment", "Atari: emulator frames after which an episode is truncated", low=1, high=2**31 - 1)
    life_loss_terminal: Chosen[bool] = _flag(None, "environment", "a lost life ends the return that is learned, but not the episode (default: on for Atari, else off)")
    env_kwargs: str = _flag("{}", "environment", "JSON object of keyword arguments for the environment")

    best: bool = _flag(False, "test", "play best.pt, the weights that evaluations beside training found best, in place of the last")
    num_episodes: int = _flag(10, "test", "episodes to play", low=1)
    greedy: bool = _flag(False, "test", "take the most probable action instead of sampling")
    render: bool = _flag(False, "test", "show the game in a window, in its own colors and at its own speed")
    video: str | None = _flag(None, "test", "folder for an mp4 of every episode, in the game's own colors and at its own speed (default: none)")
    save_episodes: str | None = _flag(None, "test", "CSV file for a row of every episode (default: none)")
    max_episode_steps: int = _flag(27_000, "test", "agent steps after which an episode is cut off", low=1)
    # fmt: on

    def __post_init__(self) -> None:
        for name, value in PRESETS.get(self.preset or "", {}).items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)  # the dataclass is frozen, but still being made
        for setting in dataclasses.fields(self):
            limits = {k: v for k, v in setting.metadata.items() if k not in ("group", "help")}
            value = getattr(self, setting.name)
            _check_type(setting, value)
            if value is not None:
                _check_value(setting.name, value, **limits)
        self._check_names()
        self._check_pairs()

    def _check_names(self) -> None:
        if not self.env.strip():
            raise ValueError("--env '': must be a Gymnasium id")
        if self.xpid is not None and not re.fullmatch(r"(?=.{1,200}$)[\w.+-]*\w[\w.+-]*", self.xpid):
            raise ValueError(f"--xpid {self.xpid!r}: must be a folder's name of letters, digits and . _ + -, at most 200")
        if self.xpid == "latest":
            raise ValueError("--xpid latest: is the link to the newest run; give that run's own name, which python -m monobeast ls lists, or another for a new run")
        if self.device is not None and not re.fullmatch(r"cpu|cuda(:\d{1,3})?", self.device):
            raise ValueError(f"--device {self.device}: must be cpu, cuda or cuda:N")
        try:
            kwargs = json.loads(self.env_kwargs)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"--env_kwargs {self.env_kwargs}: must be a JSON object ({error})") from None
        if not isinstance(kwargs, dict):
            raise ValueError(f"--env_kwargs {self.env_kwargs}: must be a JSON object, such as '{{\"key\": 1}}'")

    def _check_pairs(self) -> None:
        if self.resume and self.xpid is None:
            raise ValueError(f"--resume: needs --xpid, the name of a run; python -m monobeast ls {self.savedir} lists them")
        columns, batch = self.envs_per_actor, self.batch_size
        if columns and batch and columns % batch and batch % columns:
            raise ValueError(
                f"--batch_size {batch} --envs_per_actor {columns}: one must divide the other, "
                f"such as --batch_size {max(1, batch // columns) * columns}"
            )
        if self.force_lag and self.exact_resume:
            raise ValueError(f"--force_lag {self.force_lag} --exact_resume: exclude each other, since weights that are held back are not saved")
        if self.render and self.video is not None:
            raise ValueError(f"--render --video {self.video}: exclude each other")
        if not self.resume:  # else the number of actors may be the run's own
            self.check_slots()
        if self.use_lstm and is_own(self.network):
            raise ValueError(f"--use_lstm --network {self.network}: exclude each other; a network of your own keeps its own state")
        if self.normalize_observations and is_own(self.network):
            way_out = "a monobeast.networks.Normalizer in the network does that"
            raise ValueError(f"--normalize_observations --network {self.network}: exclude each other; {way_out}")
        if self.disable_cuda and self.device is not None and self.device != "cpu":
            raise ValueError(f"--device {self.device} --disable_cuda: exclude each other")

    def check_slots(self) -> None:
        """Raises ValueError unless there is a slot for every actor; with `resume` only `resumption` knows both."""
        if self.num_buffers is not None and self.num_buffers < (self.num_actors or 0):
            raise ValueError(
                f"--num_buffers {self.num_buffers}: must be at least --num_actors {self.num_actors}, one slot per actor"
            )


def _check_type(setting: dataclasses.Field, value: Any) -> None:
    """Raises ValueError unless `value` is of the field's annotated type; an int serves as a float."""
    accepted: Any = setting.type | int if setting.type in (float, float | None) else setting.type
    is_misplaced_bool = isinstance(value, bool) and setting.type not in (bool, bool | None)
    if is_misplaced_bool or not isinstance(value, accepted):
        wanted = getattr(setting.type, "__name__", str(setting.type))
        raise ValueError(f"--{setting.name} {value!r}: must be of type {wanted}")


def to_flags(settings: dict[str, Any]) -> list[str]:
    """Settings, by the names of their fields, as the words of a command line that gives them."""
    words = []
    for name, value in settings.items():
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no_{name}")
        else:
            words += [f"--{name}", "none" if value is None else str(value)]
    return words
