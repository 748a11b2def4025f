"""Steps per second by numbers of actors, environments per actor and learner threads, and the choice of `auto`."""

import argparse
import itertools
import statistics
from typing import Any

import pages

from monobeast import preparation
from monobeast.benchmarks import whole
from monobeast.config import AUTO, Config

SECONDS, WARM_UP_S, ROUNDS = 8.0, 2.0, 2


def measure(settings: list[dict[str, Any]]) -> list[float]:
    """Steps per second of each setting, the median of several alternating runs."""
    speeds: list[list[float]] = [[] for _ in settings]
    for _ in range(ROUNDS):
        for one, of_one in zip(settings, speeds, strict=True):
            of_one.append(whole.run(one, SECONDS, WARM_UP_S).steps_per_second)
            print(".", end="", flush=True)
    print()
    return [statistics.median(of_one) for of_one in speeds]


def main() -> None:
    """Prints one row per setting, fastest first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="ALE/Pong-v5")
    parser.add_argument("--unroll_length", type=int, default=10)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--use_lstm", action="store_true")
    for name, values in (("num_actors", [1, 2, 3]), ("envs_per_actor", [8, 16, 32]), ("num_learner_threads", [1])):
        parser.add_argument(f"--{name}", type=int, nargs="+", default=values)
    chosen = vars(parser.parse_args())
    all_sizes = itertools.product(*(chosen.pop(name) for name in AUTO))
    sizes = [dict(zip(AUTO, size, strict=True)) for size in all_sizes]
    auto = preparation.prepare(Config(**chosen)).config
    speeds = measure([chosen | size for size in sizes])
    best, rows = max(speeds), []
    for speed, size in sorted(zip(speeds, sizes, strict=True), key=lambda pair: -pair[0]):
        mark = "auto" if all(getattr(auto, name) == value for name, value in size.items()) else ""
        rows.append([*size.values(), f"{speed:,.0f}", f"{speed / best:.2f}", mark])
    print(pages.table(["actors", "environments each", "learner threads", "steps/s", "of the best", ""], rows))


if __name__ == "__main__":
    main()
