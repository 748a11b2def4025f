"""monobeast/vtrace_vectors.json is what its script makes, says what it holds, and holds what it says."""

import ast
import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import exact_vtrace
import make_vtrace_vectors
import numpy as np
import pytest

from monobeast.vtrace_vectors import load_cases, load_kinds

SCRIPTS = Path(make_vtrace_vectors.__file__).parent
CASES = load_cases()
DOCUMENT = json.loads(make_vtrace_vectors.FILE.read_text())
WITH_ENDS = [case for case in CASES if case.ends]


def test_the_file_made_anew_is_the_same_to_the_last_bit():
    assert make_vtrace_vectors.render() == make_vtrace_vectors.FILE.read_text()


def test_the_script_writes_the_file_where_there_is_none(tmp_path):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "monobeast").mkdir()
    for name in ("exact_vtrace.py", "make_vtrace_vectors.py", make_vtrace_vectors.PUBLISHED.name):
        shutil.copy(SCRIPTS / name, tmp_path / "scripts")

    subprocess.run([sys.executable, tmp_path / "scripts" / "make_vtrace_vectors.py"], check=True)

    made = tmp_path / "monobeast" / make_vtrace_vectors.FILE.name
    assert made.read_bytes() == make_vtrace_vectors.FILE.read_bytes()


def test_the_inputs_of_a_published_case_are_not_changed_unseen(tmp_path, monkeypatch):
    text = make_vtrace_vectors.PUBLISHED.read_text()
    monkeypatch.setattr(make_vtrace_vectors, "PUBLISHED", tmp_path / "changed.json")
    make_vtrace_vectors.PUBLISHED.write_text(text.replace("0.5494811978797249", "0.5494811978797248"))

    with pytest.raises(ValueError, match="the inputs of the published cases were changed"):
        make_vtrace_vectors.render()


def test_the_sum_does_not_round_where_float64_would():
    inputs = {"log_rhos": [[0.0], [0.0]], "discounts": [[1.0], [1.0]], "rewards": [[1e17], [1.0]]}
    inputs |= {"values": [[0.0], [0.0]], "bootstrap_value": [-1e17]}

    found = exact_vtrace.exact_vtrace(inputs, make_vtrace_vectors.PAPER)

    assert found["vs"] == [[1.0], [1.0 - 1e17]]  # 1e17 + 1 is 1e17 in float64


@pytest.mark.parametrize("name", ["exact_vtrace.py", "make_vtrace_vectors.py"])
def test_the_scripts_share_no_code_with_what_they_judge(name):
    nodes = list(ast.walk(ast.parse((SCRIPTS / name).read_text())))
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}

    assert {module.split(".")[0] for module in modules} <= {*sys.stdlib_module_names, "exact_vtrace"}


def test_the_schema_names_every_member_of_a_case():
    members = {member for case in DOCUMENT["cases"] for member in case}

    assert members <= set(DOCUMENT["schema"])
    assert {name for case in CASES for name in (*case.inputs, *case.ends, *case.expected)} <= set(
        " ".join(DOCUMENT["schema"].values()).replace(",", " ").replace(":", " ").split()
    )


def test_names_are_of_one_case_and_every_kind_has_a_case():
    assert max(Counter(case.name for case in CASES).values()) == 1
    assert {case.kind for case in CASES} == set(load_kinds())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_has_the_shapes_of_the_schema_and_finite_outputs(case):
    T, B, *further = case.expected["vs"].shape
    inputs = dict(case.inputs)
    state = inputs.pop("bootstrap_value")

    assert np.broadcast_shapes(state.shape, (B, *further)) == (B, *further) and state.shape[0] == B
    for array in (*inputs.values(), *case.expected.values()):
        assert array.shape[:2] == (T, B) and np.broadcast_shapes(array.shape, (T, B, *further)) == (T, B, *further)
    assert all(np.isfinite(array).all() for array in case.expected.values())
    assert set(case.params) == set(make_vtrace_vectors.PAPER)


def along_further_axes(rows, array):
    """What is [T, B], in the shape of an array that may have further axes."""
    return np.broadcast_to(rows.reshape(rows.shape + (1,) * (array.ndim - rows.ndim)), array.shape)


@pytest.mark.parametrize("case", WITH_ENDS, ids=lambda case: case.name)
def test_ends_are_those_of_the_inputs(case):
    ends, inputs = case.ends, case.inputs

    assert np.array_equal(ends["is_reset"][1:], ends["done"][:-1])  # a reset step follows every end, and no other step
    for name, shown in (("is_reset", np.isneginf(inputs["log_rhos"])), ("terminal", inputs["discounts"] == 0)):
        assert np.array_equal(shown, along_further_axes(ends[name], shown))
    assert not inputs["rewards"][ends["is_reset"]].any()
    assert not (ends["is_reset"] & ends["done"]).any()


@pytest.mark.parametrize("case", WITH_ENDS, ids=lambda case: case.name)
def test_at_a_reset_step_nothing_is_learned(case):
    is_reset = case.ends["is_reset"]

    assert np.array_equal(case.expected["vs"][is_reset], case.inputs["values"][is_reset])
    assert not case.expected["pg_advantages"][is_reset].any()


def test_episodes_end_in_a_case_with_further_axes():
    assert any(case.expected["vs"].ndim > 2 for case in WITH_ENDS)
