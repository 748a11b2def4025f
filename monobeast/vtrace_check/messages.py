"""Numbers as they stand in a table."""


def write_power(number: float) -> str:
    """A power of ten, as one would type it: 1e-9."""
    return f"{number:.0e}".replace("e-0", "e-")
