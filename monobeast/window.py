"""A window that shows a game while it is played, at normal speed."""

import os
from types import TracebackType
from typing import Any, Self

import numpy as np

from monobeast.errors import missing_package

_LEAST_HEIGHT = 400  # pixels; smaller pictures are enlarged, each pixel to a square
_WAY_OUT = "--video DIR makes a film"
_UNSEEN = ("offscreen", "dummy")  # drivers that SDL falls back to


class WindowClosed(Exception):
    """The user closed the window."""


def require_screen() -> None:
    """Raises ValueError, with the reason, unless a window can be opened."""
    try:
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        import pygame
    except ImportError as error:
        raise missing_package("--render", "pygame", error, "pygame-ce") from None
    try:
        pygame.display.init()
    except pygame.error as error:
        raise ValueError(f"--render: no window can be opened here ({error}); {_WAY_OUT}") from None
    if pygame.display.get_driver() in _UNSEEN and "SDL_VIDEODRIVER" not in os.environ:
        raise ValueError(f"--render: there is no screen here; {_WAY_OUT}")


class Window:
    """Shows pictures one after the other; a context manager. The window opens with the first.

    Args:
        title: Of the window.
        frames_per_second: Maximum pictures per second.
    """

    def __init__(self, title: str, frames_per_second: float) -> None:
        self._title = title
        self._frames_per_second = frames_per_second
        self._surface: Any = None
        self._clock: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if self._surface is not None:
            import pygame

            pygame.display.quit()

    def add(self, picture: np.ndarray) -> None:
        """Shows a picture, uint8 [height, width, 3], after the previous one's display time.

        Raises:
            WindowClosed: the window was closed.
        """
        import pygame

        height, width = picture.shape[:2]
        factor = -(-_LEAST_HEIGHT // height)
        if self._surface is None:
            pygame.display.init()
            self._surface = pygame.display.set_mode((width * factor, height * factor))
            pygame.display.set_caption(self._title)
            self._clock = pygame.time.Clock()
        if any(event.type == pygame.QUIT for event in pygame.event.get()):
            raise WindowClosed
        image = pygame.surfarray.make_surface(picture.swapaxes(0, 1))  # pygame counts columns first
        pygame.transform.scale(image, self._surface.get_size(), self._surface)
        pygame.display.flip()
        self._clock.tick(self._frames_per_second)
