"""What an error says is one line."""

import pytest

from monobeast.errors import describe


@pytest.mark.parametrize(
    ("message", "whole", "short"),
    [
        ("no", "ValueError: no", "ValueError: no"),
        ("", "ValueError", "ValueError"),
        (" \n", "ValueError", "ValueError"),
        ("two\n\tlines", "ValueError: two lines", "ValueError: two ..."),
        ("\x1b[31mred π", r"ValueError: \x1b[31mred π", r"ValueError: \x1b[31mred π"),
    ],
)
def test_an_error_is_described_in_a_line_that_moves_and_colors_nothing(message, whole, short):
    assert describe(ValueError(message)) == whole
    assert describe(ValueError(message), is_short=True) == short
