"""Schedules evaluations beside training and records their results: `--evaluate_every`."""

import dataclasses
import logging
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Self

from monobeast.config import Config
from monobeast.environments import Spaces
from monobeast.evaluator import Evaluator, EvaluatorTask
from monobeast.learner import Learner
from monobeast.makers import Makers
from monobeast.runs.evaluation_log import Evaluation, EvaluationLog
from monobeast.runs.sinks import Sinks
from monobeast.score import Episode
from monobeast.weights import flatten, name_weights, weights_of

_POLL_S = 0.2  # how often the last evaluation looks at signals

logger = logging.getLogger(__name__)


class EvaluationSchedule:
    """Evaluates the weights whenever training crosses a multiple of `--evaluate_every`. A context manager.

    Training never waits: an evaluation that is due while the previous one still plays is skipped. The evaluator gets a
    copy of the weights, which does not change until it answers, and which is saved as `best.pt` if it is the best.

    Args:
        config: Resolved, with `evaluate_every`.
        spaces: Of one environment.
        learner: Whose weights are evaluated.
        folder: Of the run.
        is_resumed: Whether the run continues from a checkpoint, at the learner's step.
        makers: Of environments and networks.
        sinks: Also get the rows of `evaluations.csv`.
    """

    def __init__(
        self,
        config: Config,
        spaces: Spaces,
        learner: Learner,
        folder: Path,
        is_resumed: bool,
        makers: Makers,
        sinks: Sinks = Sinks(),
    ) -> None:
        self._config, self._learner = config, learner
        self._weights = flatten(weights_of(learner.network)).cpu().share_memory_()
        self._evaluator = Evaluator(
            EvaluatorTask(config, spaces, self._weights, folder / "out.log", makers.pickle())
        )
        self._log = EvaluationLog(folder, learner.step if is_resumed else None, sinks)
        self._num_crossed = learner.step // config.evaluate_every
        self._num_left_out = 0
        self._under_way = (0, 0)  # steps and updates of the copied weights
        self._last_step = learner.step  # of the last row, or of the start

    def __enter__(self) -> Self:
        self._evaluator.start()  # now, so that nothing is imported while training
        return self

    def __exit__(self, *_: object) -> None:
        self._evaluator.close()
        self._log.close()

    def attend(self) -> None:
        """Takes a finished evaluation and starts one if due; to be called often."""
        self._take()
        num_crossed = self._learner.step // self._config.evaluate_every
        if num_crossed > self._num_crossed:
            self._num_crossed = num_crossed
            if self._evaluator.is_busy:
                self._num_left_out += 1
            else:
                self._begin()

    def finish(self, has_to_stop: Callable[[], bool]) -> None:
        """Waits for an evaluation of the last weights, unless asked to stop.

        Args:
            has_to_stop: Called several times per second.
        """
        if self._last_step == self._learner.step or has_to_stop():
            return
        logger.info("the last weights are evaluated")
        self._wait(has_to_stop)  # for one that is under way, which may be of these very weights
        if self._last_step < self._learner.step and not has_to_stop():
            self._begin()
            self._wait(has_to_stop)
        if self._evaluator.is_busy:
            logger.info("their evaluation is not waited for")

    def _wait(self, has_to_stop: Callable[[], bool]) -> None:
        while self._evaluator.is_busy and not has_to_stop():
            self._evaluator.wait(_POLL_S)
            self._take()

    def _begin(self) -> None:
        self._weights.copy_(flatten(weights_of(self._learner.network)))
        self._under_way = self._learner.step, self._learner.num_updates
        self._evaluator.begin(version=self._learner.num_updates)

    def _take(self) -> None:
        answer = self._evaluator.look()
        if answer is None:
            return
        evaluation = summarize(*self._under_way, *answer)
        self._log.write(evaluation)
        is_kept = not self._config.disable_checkpoint and self._keep_if_best(evaluation)
        logger.info("%s", self._describe(evaluation, is_kept))
        self._last_step, self._num_left_out = evaluation.step, 0

    def _keep_if_best(self, evaluation: Evaluation) -> bool:
        if not self._log.is_best(evaluation):
            return False
        weights = name_weights(self._weights, self._learner.network)
        return self._log.save_best(evaluation, dataclasses.asdict(self._config), weights)

    def _describe(self, evaluation: Evaluation, is_kept: bool) -> str:
        episodes = f"{evaluation.episodes} episode{'s' if evaluation.episodes > 1 else ''}"
        extremes = f"{evaluation.min_episode_return:g} to {evaluation.max_episode_return:g}"
        mean_return = f"return {evaluation.mean_episode_return:.2f} ({episodes}, {extremes})"
        parts = [f"evaluation of step {evaluation.step:,}: {mean_return}", f"{evaluation.evaluation_seconds:.1f} s"]
        parts += ["the best so far"] if is_kept else []
        parts += [f"{self._num_left_out} left out meanwhile"] if self._num_left_out else []
        return ", ".join(parts)


def summarize(step: int, updates: int, episodes: list[Episode], seconds: float) -> Evaluation:
    """The row of an evaluation with at least one episode."""
    returns = [episode.episode_return for episode in episodes]
    return Evaluation(
        step=step,
        updates=updates,
        episodes=len(episodes),
        mean_episode_return=statistics.fmean(returns),
        std_episode_return=statistics.stdev(returns) if len(returns) > 1 else None,
        min_episode_return=min(returns),
        max_episode_return=max(returns),
        mean_episode_length=statistics.fmean(episode.length for episode in episodes),
        capped_episodes=sum(episode.is_capped for episode in episodes),
        evaluation_seconds=seconds,
    )
