"""Films of episodes as mp4, in original colors and at the game's normal speed."""

from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import numpy as np

from monobeast.errors import describe, missing_package
from monobeast.files import replaced

# Color is stored for two by two pixels, so that the small screens of old games would lose theirs unless enlarged.
_LEAST_HEIGHT = 400
_QUALITY = 8  # of 0 to 10
# Said in the file, since players guess it by the size of the picture: otherwise greens and reds shift.
_COLORS = "bt709"


def require_writer(path: str) -> None:
    """Raises ValueError, with the command that installs it, unless there is a program that writes films to `path`."""
    try:
        import imageio_ffmpeg

        imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError) as error:
        raise missing_package(f"--video {path}", "imageio-ffmpeg", describe(error, is_short=True)) from None


class Film:
    """Writes one film; a context manager. The file gets its name when the film is complete.

    Args:
        path: Of the mp4; an existing file is replaced.
        frames_per_second: Pictures per second.
    """

    def __init__(self, path: Path, frames_per_second: float) -> None:
        self._path = path
        self._frames_per_second = frames_per_second
        self._writer: Generator[None, Any, None] | None = None
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._opened.__exit__(*error)

    def add(self, picture: np.ndarray) -> None:
        """Adds a picture, uint8 [height, width, 3]; all pictures of a film have the same size.

        Raises:
            OSError: it cannot be written.
        """
        if self._writer is None:
            self._writer = self._open(*picture.shape[:2])
        self._writer.send(np.ascontiguousarray(picture))

    def _open(self, height: int, width: int) -> Generator[None, Any, None]:
        import imageio_ffmpeg

        factor = -(-_LEAST_HEIGHT // height)
        enlarged = f"scale=iw*{factor}:ih*{factor}:flags=neighbor:out_color_matrix={_COLORS}"
        even = "pad=ceil(iw/2)*2:ceil(ih/2)*2"  # as the format wants it
        colors = ("-colorspace", _COLORS, "-color_primaries", _COLORS, "-color_trc", _COLORS)
        writer = imageio_ffmpeg.write_frames(
            str(self._opened.enter_context(replaced(self._path))),
            (width, height),
            fps=self._frames_per_second,
            quality=_QUALITY,
            codec="libx264",
            macro_block_size=1,  # else it would stretch the picture to a multiple of 16
            ffmpeg_log_level="error",
            # The name that it has while it is written does not tell ffmpeg the format.
            output_params=["-vf", f"{enlarged},{even}", *colors, "-f", "mp4"],
        )
        self._opened.callback(writer.close)  # waits for ffmpeg
        writer.send(None)
        return writer
