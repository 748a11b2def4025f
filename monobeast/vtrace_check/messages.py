"""Formats numbers, and texts from other people's code for a line of a table."""


def describe(error: BaseException) -> str:
    """An exception's type and the first line of its message."""
    lines = str(error).strip().splitlines() or [""]
    text = escape(lines[0]) + (" ..." if len(lines) > 1 else "")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def escape(text: str) -> str:
    """The text, with control characters escaped."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def write_power(number: float) -> str:
    """A power of ten, as one would type it: 1e-9."""
    return f"{number:.0e}".replace("e-0", "e-")
