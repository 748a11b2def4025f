"""Every equation of the table in docs/vtrace.md has code and a test, and the table is the one that docstrings make."""

import equations
import pytest


@pytest.mark.parametrize("equation", equations.EQUATIONS)
def test_an_equation_has_code_and_a_test(equation):
    assert equations.find_functions(equation) and equations.find_tests(equation)


def test_no_docstring_names_an_equation_that_the_table_lacks():
    citations = [equations.find_citations(path) for path in (*equations.MATHEMATICS, *equations.TESTS)]
    named = {equation for of_file in citations for equation, _ in of_file}

    assert named == set(equations.EQUATIONS)


def test_the_pages_table_is_the_one_that_docstrings_make():
    page = equations.PAGE.read_text()

    assert equations.render(page) == page


@pytest.mark.parametrize(
    "text",
    [
        '@pytest.mark.skip\ndef test_it():\n    """Equation (1)."""',
        '@pytest.mark.xfail(reason="")\ndef test_it():\n    """Equation (1)."""',
        'def test_it():\n    """Equation (1)."""\n    pytest.skip("")',
        'def test_it():\n    """Equation (1)."""\n\ndef test_it():\n    pytest.skip("")',
        'never = pytest.mark.skipif(True)\n@never\ndef test_it():\n    """Equation (1)."""',
        'pytestmark = [pytest.mark.skip]\ndef test_it():\n    """Equation (1)."""',
        'def helper():\n    def test_it():\n        """Equation (1)."""',
    ],
)
def test_a_test_that_may_never_run_does_not_count(text, tmp_path, monkeypatch):
    (tmp_path / "test_file.py").write_text(text)
    monkeypatch.setattr(equations, "TESTS", [tmp_path / "test_file.py"])
    assert equations.find_tests("equation (1)") == []

    (tmp_path / "test_other.py").write_text('def test_it():\n    """Equation (1)."""')
    monkeypatch.setattr(equations, "TESTS", [tmp_path / "test_other.py"])
    assert equations.find_tests("equation (1)") == ["`test_other`: it"]


def test_a_table_out_of_date_is_written_anew():
    page = "before\n<!-- from scripts/equations.py: equations -->\n| old |\n<!-- end -->\nafter"

    lines = equations.render(page).splitlines()

    assert lines[0] == "before" and lines[-1] == "after" and "| old |" not in lines
    cells = next(line for line in lines if "equation (1)" in line).split(" | ")
    assert cells[2] == "`vtrace.from_importance_weights`" and "`test_vtrace`: equals the double sum of the" in cells[3]
