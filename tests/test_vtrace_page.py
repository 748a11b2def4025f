"""The numbers of docs/vtrace.md follow from its script, and its sums are right."""

import re
from xml.etree import ElementTree

import fixed_point
import make_vtrace_page as page
import numpy as np
import pytest
import vtrace_implementations as implementations

from monobeast.__main__ import run_command
from monobeast.vtrace_check import check_vtrace
from monobeast.vtrace_check.comparison import FLOAT32_TOLERANCE, TOLERANCE
from monobeast.vtrace_check.messages import write_power

TEXT = page.PAGE.read_text()
# A product is written with a point, or with nothing before a bracket: "1 (2 + 0.5 · 4 - 1) = 3".
SUMS = re.findall(r"([-\d.][-\d.()+· /]*[+·/][-\d.()+· /]*) = (-?[\d.]*\d)", TEXT.split("## By hand")[1])


def test_the_page_made_anew_is_the_same():
    assert page.render(TEXT) == TEXT
    assert TEXT.count("<!-- from scripts/make_vtrace_page.py:") == 15


def test_prose_has_no_number_that_the_script_does_not_make():
    no_prose = r"<!-- from.*?<!-- end -->|```.*?```|`.*?`|^    .*?$|arXiv [\d.]+"
    prose = re.sub(no_prose, "", TEXT, flags=re.DOTALL | re.MULTILINE)

    assert len(prose.split()) > 500
    assert not re.findall(r"\d\.\d|\de-?\d|(?:=|is|at) -?(?:[2-9]|1\d)", prose)


def test_the_tolerances_of_docstring_and_help_are_those_of_the_code(capfd):
    tolerances = [write_power(tolerance) for tolerance in (TOLERANCE, FLOAT32_TOLERANCE)]
    with pytest.raises(SystemExit):
        run_command(["check-vtrace", "--help"])

    for text in (check_vtrace.__doc__, capfd.readouterr().out, page.render_tolerances()):
        assert re.findall(r"\de-\d+", text) == tolerances


@pytest.mark.parametrize(("terms", "result"), SUMS)
def test_a_sum_done_by_hand_is_right(terms, result):
    assert eval(re.sub(r"(?<=\d) \(", " * (", terms.replace("·", "*"))) == pytest.approx(float(result))


def test_sums_done_by_hand_are_found_and_lead_to_the_tables_numbers():
    vs, advantages = page.WORKED.solve()

    assert len(SUMS) == 14
    assert {*vs.tolist(), advantages[0]} == {2.25, 2.5, 4.0, 1.25} <= {float(result) for _, result in SUMS}
    assert page.TRUNCATED.solve().vs[1] == 2.5 and page.TRUNCATED._replace(ratios=[1.0] * 4).solve().vs[1] == 2.25


@pytest.mark.parametrize("rho_bar", fixed_point.RHO_BARS)
def test_the_plotted_fixed_points_lie_on_the_line_of_equation_3(rho_bar):
    assert fixed_point.find_fixed_point(rho_bar, min(1.0, rho_bar)).value == pytest.approx(
        fixed_point.value_of(fixed_point.chosen_policy(rho_bar))
    )


def test_the_plot_shows_the_numbers_of_the_table():
    axes = fixed_point.draw().axes
    points = axes[0].get_lines()[1].get_xydata()
    rows = [line.split(" | ") for line in page.render_rho_bars().splitlines()[2:]]

    deviations = axes[1].get_lines()[0].get_ydata()
    np.testing.assert_allclose(points, [[float(row[0].strip("| ")), float(row[3])] for row in rows], atol=6e-4)
    np.testing.assert_allclose(deviations, [float(row[5].strip(" |")) for row in rows], atol=6e-4)
    assert f"({page.PLOT.name})" in TEXT


def read_plot(text):
    """Names of its elements and its texts, in their order, and every number that places a line or a point."""
    elements = [*ElementTree.fromstring(text).iter()]
    places = " ".join(element.get(name, "") for element in elements for name in ("d", "x", "y", "transform"))
    shown = [(element.tag, element.text) for element in elements if "purl.org" not in element.tag]
    return shown, [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", places)]


def test_the_plot_drawn_anew_is_the_same():
    (shown, places), (expected, right) = read_plot(page.PLOT.read_text()), read_plot(fixed_point.render_svg())

    assert shown == expected and len(places) > 500
    np.testing.assert_allclose(places, right, atol=0.5)  # points, 72 an inch


def batch_first(log_rhos, rewards, values, bootstrap_value, dones, gamma):
    turned = [np.swapaxes(x, 0, 1) for x in (log_rhos, gamma * (1 - dones), rewards, values)]
    return [np.swapaxes(x, 0, 1) for x in implementations.right(*turned, bootstrap_value)]


@pytest.mark.parametrize("name", ["with_batch_first", "with_columns"])
def test_the_wrappers_do_what_the_page_says(name):
    names = {"batch_first": batch_first, "one_trajectory": implementations.right}
    exec(TEXT.split("A function with other arguments")[1].split("```python\n")[1].split("```")[0], names)

    assert check_vtrace(names[name]).agrees


def test_every_mistake_shows_in_its_column_or_is_said_not_to():
    _, table, _, others = page.render_mistakes().split("\n\n")
    rows = table.splitlines()[3:]

    names = {mistake.name for mistake in page.MISTAKES}
    assert len(rows) + len(others.splitlines()) == len(names) and len(others.splitlines()) == 3
    assert all(sum(f"{name} (" in line for line in (*rows, *others.splitlines())) == 1 for name in names)
    assert len({row.split("|", 2)[2] for row in rows}) == len(rows)
    assert all("**" in row for row in rows)
