"""Writes a run's numbers as TensorBoard event files, `--tensorboard`."""

from pathlib import Path

from monobeast.errors import missing_package

FOLDER_NAME = "tensorboard"


def require_tensorboard() -> None:
    """Raises ValueError, with the command that installs it, unless TensorBoard is there."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError as error:
        raise missing_package("--tensorboard", "tensorboard", error) from None


class TensorBoardSink:
    """Writes scalars over agent steps.

    Args:
        folder: Of the run.
        up_to_step: Of the checkpoint that a run resumes from; TensorBoard leaves out data beyond it.
    """

    def __init__(self, folder: Path, up_to_step: int | None = None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        purge_step = None if up_to_step is None else up_to_step + 1
        self._writer = SummaryWriter(str(folder / FOLDER_NAME), purge_step=purge_step)

    def write(self, numbers: dict[str, float], step: int) -> None:
        """Adds a row; it is in the file when this returns."""
        for name, number in numbers.items():
            self._writer.add_scalar(name, number, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
