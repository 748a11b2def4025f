"""Every setting of a run: the single source of flags, defaults, help and checks.

Imports neither torch nor gymnasium, so that `--help` and errors about bad values appear at once.
"""

import dataclasses
import json
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from monobeast.presets import PRESETS
from monobeast.user_code import is_own

IMAGE_NETWORKS = ("shallow", "deep", "torchbeast")
NETWORKS = ("auto", "mlp", *IMAGE_NETWORKS)
_OWN = "module:Class"  # among choices: any value of that form
AUTO = ("num_actors", "envs_per_actor", "num_learner_threads")  # if left open, chosen by a measurement

_LARGEST = 3.4e38  # of float32, in which updates are computed
_LONGEST_S = 1e9  # no clock of the system goes beyond, and no run

_T = TypeVar("_T")
if TYPE_CHECKING:
    Chosen = Annotated[_T, "None until the preset, the environment or the machine decides it"]
else:

    class Chosen:
        """A setting that may be left open: None until the preset, the environment or the machine decides it."""

        def __class_getitem__(cls, kind: type) -> Any:
            return kind | None


def _flag(default: Any, group: str, help: str, **limits: Any) -> Any:
    """A field of `Config`; `limits` are the keyword arguments of `_check_value`."""
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
    if isinstance(value, float) and not abs(value) <= _LARGEST:
        kind = "that float32 has" if math.isfinite(value) else "that is finite"
        raise ValueError(f"--{name} {value}: must be a number {kind}" + (f", {wanted}" if wanted else ""))
    if not all(holds(bound) for bound, _, holds in bounds if bound is not None):
        raise ValueError(f"--{name} {value}: must be {wanted}")


@dataclass(frozen=True)
class Config:
    """Settings of one run, checked on construction.

    Every field is a command-line flag of the same name. None in a `Chosen` field leaves it open, also to the preset: it is
    filled on construction, or decided later by `preparation.prepare`, and recorded. In other fields None means none.

    Raises:
        ValueError: a value is out of range, or two values do not fit each other; the message names the flag, the value
            and the range.
    """

    # fmt: off
    env: str = _flag("ALE/Pong-v5", "run", "Gymnasium id; module:Id imports the module first")
    preset: Chosen[str] = _flag(None, "run", "named set of defaults; flags override it (default: atari for Atari games, atari_lstm with --use_lstm; else classic)", choices=tuple(PRESETS))
    xpid: Chosen[str] = _flag(None, "run", "name of the run's folder in savedir (default: from the date and time)")
    resume: bool = _flag(False, "run", "continue the run named by --xpid from its checkpoint; flags override its recorded settings")
    exact_resume: bool = _flag(False, "run", "save the state of environments and sampling in every checkpoint, so that a resumed run is bit-identical to an uninterrupted one; only with --num_actors 0, and not for Atari")
    savedir: str = _flag("~/logs/monobeast", "run", "folder of all runs")
    total_steps: int = _flag(10_000_000, "run", "agent steps to learn from, including reset steps (the step in which an environment is reset; its action is ignored); also the length of the schedules of learning rate and entropy cost", low=1)
    max_seconds: float | None = _flag(None, "run", "seconds after which the run ends cleanly, without evaluating its last weights (default: no limit)", above=0, high=_LONGEST_S)
    stall_timeout_s: float = _flag(900.0, "run", "seconds without an update after which the run fails and reports what every process was doing", above=0, high=_LONGEST_S)
    seed: Chosen[int] = _flag(None, "run", "seed of networks, environments and sampling (default: drawn at random and recorded)", low=0, high=2**63 - 1)
    log_interval_s: float = _flag(5.0, "run", "seconds between rows of logs.csv", above=0, high=_LONGEST_S)
    checkpoint_interval_s: float = _flag(600.0, "run", "seconds between checkpoints", above=0, high=_LONGEST_S)
    evaluate_every: int | None = _flag(None, "run", "agent steps between evaluations of the newest weights, in a separate process beside training; each adds a row to evaluations.csv, and best.pt keeps the best weights (default: no evaluations)", low=1)
    evaluate_episodes: int = _flag(10, "run", "episodes per evaluation, played as by test", low=1)
    tensorboard: bool = _flag(False, "run", "also write every row of logs.csv and evaluations.csv for TensorBoard, to the run's folder; needs tensorboard")
    wandb: bool = _flag(False, "run", "also send every row of logs.csv and evaluations.csv to Weights & Biases, or keep them in the run's folder without a login; needs wandb")
    timeline: str | None = _flag(None, "run", "file for a Chrome trace of all processes over 5 seconds of the run (default: none)")
    disable_checkpoint: bool = _flag(False, "run", "save no checkpoints")

    num_actors: Chosen[int] = _flag(None, "actors", "actor processes; with 0 the learner's process collects rollouts, and the run is repeatable (default: auto, the fastest by measurement on this machine)", low=0)
    envs_per_actor: Chosen[int] = _flag(None, "actors", "E: environments per actor, which share one forward pass (default: the preset's, else auto)", low=1)
    unroll_length: Chosen[int] = _flag(None, "actors", "T: steps of a rollout (default: the preset's)", low=1)
    num_buffers: Chosen[int] = _flag(None, "actors", "slots in shared memory, each for one rollout of E trajectories (default: 2 per actor)", low=1)
    actor_timeout_s: float = _flag(300.0, "actors", "seconds without an answer after which an actor that holds a slot, or a busy evaluator, is replaced", above=0, high=_LONGEST_S)
    max_actor_restarts: int = _flag(10, "actors", "maximum number of failed actors replaced within an hour; beyond it the run fails. The evaluator has the same limit; beyond it training continues without evaluations", low=0)
    start_method: str = _flag("forkserver", "actors", "how actor processes are started: forkserver or spawn", choices=("forkserver", "spawn"))

    batch_size: Chosen[int] = _flag(None, "learner", "B: trajectories per update; one of B and E must divide the other (default: the preset's)", low=1)
    optimizer: Chosen[str] = _flag(None, "learner", "rmsprop or adam (default: the preset's)", choices=("rmsprop", "adam"))
    learning_rate: Chosen[float] = _flag(None, "learner", "initial learning rate (default: the preset's)", above=0)
    learning_rate_schedule: str = _flag("linear", "learner", "linear: the learning rate falls to 0 at total_steps, as in the paper; constant: it does not change", choices=("linear", "constant"))
    alpha: Chosen[float] = _flag(None, "learner", "RMSProp smoothing constant (default: the preset's)", low=0, high=1)
    momentum: Chosen[float] = _flag(None, "learner", "RMSProp momentum (default: the preset's)", low=0)
    epsilon: Chosen[float] = _flag(None, "learner", "added to the square root of RMSProp's or Adam's average of squared gradients (default: the preset's)", above=0)
    rmsprop_start: Chosen[float] = _flag(None, "learner", "initial value of RMSProp's average of squared gradients: 0 as in PyTorch, 1 as in TensorFlow (default: the preset's)", low=0)
    grad_norm_clipping: Chosen[float] = _flag(None, "learner", "global norm to which gradients are clipped (default: the preset's)", above=0)
    max_bad_updates: int = _flag(10, "learner", "updates with a number that is not finite are skipped; after this many in a row the run fails", low=1)
    force_lag: int = _flag(0, "learner", "delay, in updates, with which weights reach the actors, to study the effect of lag; exact with --num_actors 0 and a --batch_size of at least E", low=0, high=100_000)
    num_learner_threads: Chosen[int] = _flag(None, "learner", "torch threads of the learner (default: auto)", low=1)
    compile: bool = _flag(False, "learner", "compile the forward pass and the loss into one program with torch.compile; the first update takes 3 to 30 seconds longer; on a CPU this needs a C++ compiler")
    device: Chosen[str] = _flag(None, "learner", "cpu, cuda or cuda:N (default: cuda if available)")
    disable_cuda: bool = _flag(False, "learner", "learn on the CPU even if there is a GPU")

    discounting: Chosen[float] = _flag(None, "loss", "gamma: discount factor per agent step (default: the preset's)", low=0, high=1)
    baseline_cost: Chosen[float] = _flag(None, "loss", "weight of the baseline loss (default: the preset's)", low=0)
    entropy_cost: Chosen[float] = _flag(None, "loss", "initial weight of the entropy loss (default: the preset's)", low=0)
    entropy_cost_end: Chosen[float] = _flag(None, "loss", "weight of the entropy loss at total_steps, reached linearly; the same as entropy_cost: it does not change (default: the preset's; if it has none, entropy_cost)", low=0)
    reward_clipping: str = _flag("auto", "loss", "how the learner clips rewards: abs_one: to [-1, 1]; soft_asymmetric: 0.3 min(tanh r, 0) + 5 max(tanh r, 0); auto: abs_one for Atari, else none", choices=("auto", "abs_one", "none", "soft_asymmetric"))
    normalize_rewards: bool = _flag(False, "loss", "after clipping, divide rewards by the standard deviation of all discounted returns so far, and clip the result to [-10, 10]")
    reward_scale: float = _flag(1.0, "loss", "factor by which the learner multiplies rewards, after clipping and normalization", above=0)
    correction: str = _flag("vtrace", "loss", "off-policy correction: vtrace, or one of the alternatives in table 2 of the paper: one_step, epsilon, none", choices=("vtrace", "one_step", "epsilon", "none"))
    clip_rho_threshold: float | None = _flag(1.0, "loss", "rho-bar: upper limit of the importance weights in V-trace's targets; none: no limit", low=0)
    clip_pg_rho_threshold: float | None = _flag(1.0, "loss", "upper limit of the importance weights in the policy gradient; none: no limit", low=0)
    clip_c_threshold: float | None = _flag(1.0, "loss", "c-bar: upper limit of the importance weights in V-trace's traces; none: no limit", low=0)
    vtrace_lambda: float = _flag(1.0, "loss", "lambda: factor of c in V-trace's traces (remark 2 of the paper)", low=0, high=1)

    network: str = _flag("auto", "network", "shallow, deep: convolutions for images; mlp: fully connected layers; torchbeast: MonoBeast's network, for import-torchbeast; module:Class: your own (docs/extending.md); auto: by the shape of the observations", choices=(*NETWORKS, _OWN))
    use_lstm: bool = _flag(False, "network", "put an LSTM between the features and the heads")
    normalize_observations: bool = _flag(False, "network", "subtract the mean from float observations other than images, divide by the standard deviation, and clip to [-10, 10]; both statistics are over all observations learned from")
    precision: str = _flag("float32", "network", "float32 or bfloat16: number type of the network's multiplications, in actors and learner; weights, heads and losses are always float32", choices=("float32", "bfloat16"))
    memory_format: str = _flag("channels_last", "network", "memory layout of images in convolutions: channels_last (faster on a CPU) or contiguous (channels first)", choices=("channels_last", "contiguous"))

    frame_skip: int = _flag(4, "environment", "Atari: frames for which an action is repeated", low=1, high=1000)
    noop_max: int = _flag(30, "environment", "Atari: maximum number of no-op actions after a reset", low=0, high=10_000)
    sticky_actions: Chosen[float] = _flag(None, "environment", "Atari: probability that the last action is repeated (default: depends on the id: 0.25 for v5 and v0, 0 for v4)", low=0, high=1)
    full_action_space: Chosen[bool] = _flag(None, "environment", "Atari: use all 18 actions (default: depends on the id)")
    max_episode_frames: int = _flag(108_000, "environment", "Atari: emulator frames after which an episode is truncated", low=1, high=2**31 - 1)
    life_loss_terminal: Chosen[bool] = _flag(None, "environment", "let a lost life end the return that is learned, but not the episode (default: on for Atari, else off)")
    env_kwargs: str = _flag("{}", "environment", "JSON object of keyword arguments for the environment")

    best: bool = _flag(False, "test", "play best.pt, the weights with the best evaluation during training, instead of the last ones")
    num_episodes: int = _flag(10, "test", "episodes to play", low=1)
    greedy: bool = _flag(False, "test", "take the most probable action instead of sampling")
    render: bool = _flag(False, "test", "show the game in a window, in the original colors and at the original speed")
    video: str | None = _flag(None, "test", "folder for an mp4 film of every episode, in the original colors and at the original speed (default: none)")
    save_episodes: str | None = _flag(None, "test", "CSV file with one row per episode (default: none)")
    max_episode_steps: int = _flag(27_000, "test", "agent steps after which an episode is cut off", low=1)
    # fmt: on

    def __post_init__(self) -> None:
        for name, value in PRESETS.get(self.preset or "", {}).items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)  # the dataclass is frozen, but still under construction
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
            way_out = "; the folder that it is in goes to --savedir" if "/" in self.xpid else ""
            raise ValueError(f"--xpid {self.xpid!r}: must be a folder's name of letters, digits and . _ + -, at most 200{way_out}")
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
        if not self.resume:  # otherwise the number of actors may be that of the recorded run
            self.check_slots()
        if self.use_lstm and is_own(self.network):
            raise ValueError(f"--use_lstm --network {self.network}: exclude each other; a network of your own keeps its own state")
        if self.normalize_observations and is_own(self.network):
            way_out = "a monobeast.networks.Normalizer in the network does that"
            raise ValueError(f"--normalize_observations --network {self.network}: exclude each other; {way_out}")
        if self.disable_cuda and self.device is not None and self.device != "cpu":
            raise ValueError(f"--device {self.device} --disable_cuda: exclude each other")

    def check_slots(self) -> None:
        """Raises ValueError unless there is a slot for every actor; with `resume`, only `resumption` knows both numbers."""
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
