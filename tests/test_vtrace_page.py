"""The numbers of docs/vtrace.md follow from its script, and its sums are right."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parent.parent / "scripts"))

import make_vtrace_page as page  # noqa: E402

TEXT = page.PAGE.read_text()
# A product is written with a point, or with nothing before a bracket: "1 (2 + 0.5 · 4 - 1) = 3".
SUMS = re.findall(r"([-\d.][-\d.()+· /]*[+·/][-\d.()+· /]*) = (-?[\d.]*\d)", TEXT.split("## By hand")[1])


def test_the_page_made_anew_is_the_same():
    assert page.render(TEXT) == TEXT
    assert TEXT.count("<!-- from scripts/make_vtrace_page.py:") == 6


@pytest.mark.parametrize(("terms", "result"), SUMS)
def test_a_sum_done_by_hand_is_right(terms, result):
    assert eval(re.sub(r"(?<=\d) \(", " * (", terms.replace("·", "*"))) == pytest.approx(float(result))


def test_sums_done_by_hand_are_found_and_lead_to_the_tables_numbers():
    vs, advantages = page.WORKED.solve()

    assert len(SUMS) == 12
    assert {*vs.tolist(), advantages[0]} == {2.25, 2.5, 4.0, 1.25} <= {float(result) for _, result in SUMS}
    assert page.TRUNCATED.solve().vs[1] == 2.5 and page.TRUNCATED._replace(ratios=[1.0] * 4).solve().vs[1] == 2.25


@pytest.mark.parametrize("rho_bar", page.RHO_BARS)
def test_the_plotted_fixed_points_lie_on_the_line_of_equation_3(rho_bar):
    assert page.find_fixed_point(rho_bar, min(1.0, rho_bar)).value == pytest.approx(
        page.value_of(page.chosen_policy(rho_bar))
    )


def test_the_plot_shows_the_numbers_of_the_table():
    axes = page.draw().axes
    points = axes[0].get_lines()[1].get_xydata()
    rows = [line.split(" | ") for line in page.render_rho_bars().splitlines()[2:]]

    deviations = axes[1].get_lines()[0].get_ydata()
    np.testing.assert_allclose(points, [[float(row[0].strip("| ")), float(row[3])] for row in rows], atol=6e-4)
    np.testing.assert_allclose(deviations, [float(row[5].strip(" |")) for row in rows], atol=6e-4)
    assert f"({page.PLOT.name})" in TEXT and page.PLOT.read_text().startswith("<?xml")


def test_every_mistake_shows_in_its_column():
    rows = page.render_faults().split("\n\n")[1].splitlines()[3:]

    assert len(rows) == len(page.FAULTS) and len({row.split("|", 2)[2] for row in rows}) == len(rows)
    assert all("**" in row for row in rows)
