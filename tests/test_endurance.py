"""Faults by the hundred, at random moments, in real runs: all slow. README.md beside this file has what came out."""

import contextlib
import os
import random
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import forkserver
from pathlib import Path

import child_functions
import pytest
from csv_rows import rows_of
from process_tree import actors_of, children_of, find, is_alive, wait_until

from monobeast import session, start_methods
from monobeast.actor_pool import ActorPool
from monobeast.config import Config
from monobeast.runs import checkpoint
from monobeast.training import train
from monobeast.watched_process import WatchedProcess

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="/proc tells who the actors are"),
    pytest.mark.filterwarnings("ignore:resource_tracker"),
]
TESTS = Path(__file__).parent
# As in test_learning: with these settings Catch is played perfectly before the last step.
CATCH = {
    **{"env": "monobeast/Catch-v0", "learning_rate": 2e-3, "epsilon": 0.01, "rmsprop_start": 0.0},
    **{"entropy_cost": 0.01, "baseline_cost": 0.5, "envs_per_actor": 8, "batch_size": 8, "unroll_length": 20},
    **{"num_learner_threads": 1, "num_actors": 2, "seed": 1, "max_actor_restarts": 10**6},
}
STEPS_AN_UPDATE = 160
LAST_SHARE = 0.05  # of a run, in which nothing is killed any more, so that each death is seen before the end


@pytest.fixture(autouse=True)
def no_core_files():
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_CORE, before)


class Killer(threading.Thread):
    """Calls `kill_one` at random moments until it has done so `number` times."""

    def __init__(self, kill_one, number, longest_pause_s):
        super().__init__(daemon=True)
        self._kill_one, self._number, self._longest_pause_s = kill_one, number, longest_pause_s
        self._rng = random.Random(0)
        self.count = 0
        self.has_to_end = threading.Event()

    def run(self):
        while self.count < self._number and not self.has_to_end.is_set():
            time.sleep(self._rng.uniform(0, self._longest_pause_s))
            self.count += bool(self._kill_one(self._rng))

    @property
    def share(self):
        """Of what is to be done, 0 to 1."""
        return self.count / self._number


def train_under(killer, monkeypatch, config):
    """Trains no faster than the killer kills, and sees before every batch that each slot is in one place.

    Returns:
        The result, how many actors were replaced, and a list of one line a replacement.
    """
    pools = []

    class WatchedPool(ActorPool):
        num_batches = 0

        def __init__(self, *arguments):
            super().__init__(*arguments)
            pools.append(self)

        def get_batch(self, timeout_s):
            numbers = list(range(config.num_buffers))
            assert self.slots == [numbers[actor :: config.num_actors] for actor in range(config.num_actors)]
            share = self.num_batches * STEPS_AN_UPDATE / config.total_steps
            if killer.share < 1 and share > (1 - LAST_SHARE) * killer.share:
                time.sleep(0.002)
                return None
            batch = super().get_batch(timeout_s)
            self.num_batches += batch is not None
            return batch

    monkeypatch.setattr(session, "ActorPool", WatchedPool)
    killer.start()
    try:
        result = train(config)
    finally:
        killer.has_to_end.set()
        killer.join()
    log = (result.folder / "out.log").read_text()
    return result, pools[0].num_restarts, re.findall(r"actor \d \(.*\) (.*)", log)


def steps_of(config):
    """Where a run ends: the first multiple of a batch at or over the total."""
    return -(-config.total_steps // STEPS_AN_UPDATE) * STEPS_AN_UPDATE


def report(capsys, text):
    """Prints figures for the table in README.md, also where the test passes."""
    with capsys.disabled():
        print(f"\n    {text}")


@pytest.mark.parametrize(("start_method", "num_kills"), [("forkserver", 200), ("spawn", 20)])
def test_a_run_whose_actors_are_killed_at_random_learns_all_the_same(
    tmp_path, monkeypatch, capsys, start_method, num_kills
):
    config = Config(**CATCH, start_method=start_method, total_steps=150_000, savedir=str(tmp_path), num_buffers=4)
    sent = dict.fromkeys((signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM), 0)
    dead = set()

    def kill_one(rng):
        actors = [pid for pid in actors_of(os.getpid()) if pid not in dead]
        if not actors:
            return False
        pid, number = rng.choice(actors), rng.choice(list(sent))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            sent[number] += 1
            if number != signal.SIGTERM:  # which actors leave to the learner
                dead.add(pid)
                return True
        return False

    longest_pause_s = 0.3 if start_method == "forkserver" else 2.0
    killer = Killer(kill_one, num_kills, longest_pause_s)
    result, num_restarts, causes = train_under(killer, monkeypatch, config)

    counts = ", ".join(f"{number.name} {count}" for number, count in sent.items())
    report(capsys, f"{start_method}: {counts}; {num_restarts} replaced, step {result.step:,}, "
                   f"mean return {result.mean_episode_return}")
    assert (result.state, result.step, killer.count) == ("complete", steps_of(config), num_kills)
    assert num_restarts == len(causes) == num_kills
    assert sent[signal.SIGTERM] > 0
    assert result.mean_episode_return >= 0.9
    assert rows_of(result.folder / "logs.csv")[-1]["actor_restarts"] == str(num_kills)
    assert actors_of(os.getpid()) == []


@pytest.mark.parametrize(
    ("start_method", "what"),
    [("forkserver", "forkserver"), ("forkserver", "resource_tracker"), ("spawn", "resource_tracker")],
)
def test_a_run_outlives_the_helpers_of_multiprocessing(tmp_path, monkeypatch, capsys, start_method, what):
    """Each time one dies an actor dies as well, so that the helper is needed again."""
    config = Config(**CATCH, start_method=start_method, total_steps=30_000, savedir=str(tmp_path), num_buffers=4)
    dead = set()

    def kill_one(rng):
        helpers = [pid for pid in find(os.getpid(), f"multiprocessing.{what}") if pid not in dead]
        actors = [pid for pid in actors_of(os.getpid()) if pid not in dead]
        if not helpers or not actors:
            return False
        for pid in (helpers[0], rng.choice(actors)):
            dead.add(pid)
            with contextlib.suppress(ProcessLookupError):  # the fork server's death takes the actor along
                os.kill(pid, signal.SIGKILL)
        return True

    killer = Killer(kill_one, 10, longest_pause_s=3.0)
    result, num_restarts, _ = train_under(killer, monkeypatch, config)

    report(capsys, f"{what}, {start_method}: {killer.count} killed, {num_restarts} actors replaced")
    assert (result.state, result.step, killer.count) == ("complete", steps_of(config), 10)
    assert num_restarts >= 10 if what == "forkserver" else num_restarts == 10
    assert actors_of(os.getpid()) == []


def step_of(folder):
    return checkpoint.load(folder)["learner"]["step"]


@pytest.fixture
def training_context():
    """Of a fork server that has imported all that a training needs: a hundred of them start in a few minutes."""
    forkserver._forkserver._stop()  # that of earlier tests has less
    yield start_methods.context("forkserver", ["monobeast.training", "torch._dynamo"])
    forkserver._forkserver._stop()


def test_no_kill_during_a_save_leaves_a_run_that_does_not_load(tmp_path, capsys, caplog, training_context):
    folder, rng, last_step, num_in_the_midst = tmp_path / "run", random.Random(0), 0, 0
    path = folder / checkpoint.FILE_NAME
    files = {checkpoint.FILE_NAME, checkpoint.PREVIOUS_FILE_NAME, "logs.csv", "episodes.csv", "meta.json", "out.log"}
    partial = {"checkpoint.pt.partial", "checkpoint.previous.pt.partial"}

    def saved_at():
        return path.stat().st_mtime_ns if path.exists() else None

    for _ in range(100):
        before = saved_at()
        process = WatchedProcess(
            training_context.Process(target=child_functions.train_until_killed, args=(str(tmp_path),))
        )
        try:
            assert wait_until(lambda: saved_at() != before)
            time.sleep(rng.uniform(0, 0.1))
        finally:
            process.end()
        left = set(os.listdir(folder))
        num_in_the_midst += bool(left & partial)
        assert left <= files | partial
        assert step_of(folder) >= last_step
        last_step = step_of(folder)

    assert not caplog.records  # the newest one always was whole
    result = train(Config(resume=True, xpid="run", savedir=str(tmp_path), total_steps=last_step + 1000))

    report(capsys, f"100 kills, {num_in_the_midst} of them in the midst of a save; ended at step {result.step:,}")
    assert result.state == "complete" and result.step >= last_step + 1000
    assert set(os.listdir(folder)) == files
    assert set(os.listdir(tmp_path)) == {"run", "latest"}


def run_monobeast(tmp_path, *flags):
    """Starts a command line in a process group of its own; its output goes to a file."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)])}
    environment["TMPDIR"] = str(tmp_path)
    command = [sys.executable, "-m", "monobeast", "train", "--savedir", tmp_path, "--xpid", "run", *map(str, flags)]
    with open(tmp_path / "console", "a") as console:
        return subprocess.Popen(command, stdout=console, stderr=console, env=environment, start_new_session=True)


def has_processes(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@contextlib.contextmanager
def ended(process):
    """Leaves nothing of a process group behind."""
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def read_status(pid):
    return Path(f"/proc/{pid}/status").read_text()


@pytest.mark.parametrize(("start_method", "num_kills"), [("forkserver", 5), ("spawn", 3)])
def test_a_killed_learner_leaves_no_actor_and_no_shared_memory_and_its_run_goes_on(
    tmp_path, capsys, start_method, num_kills
):
    rng, flags, last_step = random.Random(0), ["--env", "monobeast/Catch-v0", "--num_actors", 3], 0
    flags += ["--start_method", start_method, "--seed", 1, "--num_threads", 1]
    flags += ["--checkpoint_interval_s", 0.1, "--total_steps", 10**12, "--max_seconds", 900]
    shared_before, longest_s = set(os.listdir("/dev/shm")), 0.0
    path = tmp_path / "run" / checkpoint.FILE_NAME
    for _ in range(num_kills):
        before = path.stat().st_mtime_ns if path.exists() else None
        with ended(run_monobeast(tmp_path, *flags)) as learner:
            assert wait_until(lambda: path.exists() and path.stat().st_mtime_ns != before)
            actors = actors_of(learner.pid)
            everyone = children_of(learner.pid) + actors
            assert len(actors) == 3
            time.sleep(rng.uniform(0, 1))

            learner.kill()

            start = time.monotonic()
            assert wait_until(lambda: not any(is_alive(pid) for pid in everyone), timeout_s=60)
            longest_s = max(longest_s, time.monotonic() - start)
        assert wait_until(lambda: set(os.listdir("/dev/shm")) <= shared_before, timeout_s=60)
        assert step_of(path.parent) > last_step
        last_step = step_of(path.parent)
        flags = ["--resume"]

    with ended(run_monobeast(tmp_path, "--resume", "--total_steps", last_step + 2000)) as learner:
        assert learner.wait(300) == 0
    report(capsys, f"{start_method}: {num_kills} kills, all processes gone after at most {longest_s:.2f} s; "
                   f"resumed each time, to step {step_of(path.parent):,}")
    assert step_of(path.parent) >= last_step + 2000


def test_twenty_runs_to_their_end_say_nothing_amiss_and_leave_no_process(tmp_path, capsys):
    sizes = ["--num_actors", 2, "--envs_per_actor", 8, "--num_threads", 1]  # else they are measured, which is said
    flags = ["--env", "monobeast/Catch-v0", "--total_steps", 1000, *sizes]
    for number in range(20):
        folder = tmp_path / str(number)
        folder.mkdir()
        with ended(run_monobeast(folder, *flags)) as learner:
            assert learner.wait(300) == 0
            assert wait_until(lambda: not has_processes(learner.pid))  # multiprocessing's helpers end by themselves
        assert (folder / "console").read_text() == (folder / "run" / "out.log").read_text()  # nothing but its log
        assert not [name for name in os.listdir(folder) if name.startswith("pymp-")]
    report(capsys, "20 runs, 20 with exit code 0")


def private_memory(pid):
    """Bytes that are this process's alone."""
    return 1024 * int(re.search(r"RssAnon:\s*(\d+)", read_status(pid))[1])


def test_memory_does_not_grow(tmp_path, capsys):
    flags = ["--env", "stub_environments:Fixed5-v0", "--preset", "classic", "--num_actors", 2, "--num_threads", 1]
    flags += ["--log_interval_s", 1, "--total_steps", 10**12, "--max_seconds", 900]
    memory = []

    def last_step():
        with contextlib.suppress(FileNotFoundError, IndexError, ValueError):
            return int((tmp_path / "run" / "logs.csv").read_text().splitlines()[-1].split(",")[0])
        return 0

    with ended(run_monobeast(tmp_path, *flags)) as learner:
        for step in (75_000, 300_000):
            assert wait_until(lambda: last_step() >= step, timeout_s=900)
            memory.append([private_memory(pid) for pid in (learner.pid, *actors_of(learner.pid))])

    growth = [after - before for before, after in zip(*memory, strict=True)]
    report(capsys, "300,000 steps: learner and actors grew by " + ", ".join(f"{n / 1e6:.1f} MB" for n in growth))
    assert len(growth) == 3 and max(growth) < 20e6
