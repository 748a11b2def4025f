"""README and docs agree with the code."""

import dataclasses
import re
from pathlib import Path

import flags
import pages
import pytest

from monobeast.__main__ import _COMMANDS
from monobeast.config import Config
from monobeast.presets import PRESETS
from monobeast.rollouts import Rollout
from monobeast.runs.evaluation_log import Evaluation
from monobeast.runs.logs import LOG_COLUMNS

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [README, *DOCS]
FLAGS = {setting.name for setting in dataclasses.fields(Config)}
# Of further commands; and TorchBeast's names, which are understood.
OTHER_FLAGS = {"order", "skip", "tolerance", "out", "onnx", "help", "seconds", "json", "compare", "baseline", "warm_up"}
OTHER_FLAGS |= {"mode", "rounds", "num_threads", "wheels", "state_dict", "logdir"}


def ids_of(pages):
    return [page.name for page in pages]


def test_the_tables_of_flags_and_presets_are_those_of_the_code():
    page = flags.PAGE.read_text()

    assert flags.render(page) == page
    assert set(re.findall(r"^\| `--(\w+)` \|", page.split("## Flags")[1], re.MULTILINE)) == FLAGS


def test_tables_out_of_date_are_written_anew():
    blocks = [f"<!-- from scripts/flags.py: {name} -->\n| stale |\n<!-- end -->\n" for name in ("presets", "flags")]

    written = flags.render("before\n" + "".join(blocks) + "after")

    assert written.startswith("before\n") and written.endswith("\nafter") and "stale" not in written
    assert "| `--learning_rate` | 0.0007 | 0.0003 | 0.001 | 0.0006 | 0.00048 |" in written
    assert "| `--log_interval_s` | 5.0 | seconds between" in written


def test_a_script_writes_its_own_blocks_and_leaves_those_of_others():
    block = "<!-- from scripts/{}.py: x -->\nold\n<!-- end -->\n"
    page = block.format("one") + block.format("other")

    written = pages.fill(page, "somewhere/one.py", {"x": lambda: "new"})

    assert written == "<!-- from scripts/one.py: x -->\n\nnew\n\n<!-- end -->\n" + block.format("other")
    assert pages.fill(page, "one.py", {"x": lambda: ""}).startswith("<!-- from scripts/one.py: x -->\n<!-- end -->")


def test_a_block_that_nothing_writes_is_an_error():
    with pytest.raises(KeyError, match="gone"):
        pages.fill("<!-- from scripts/one.py: gone -->\n<!-- end -->", "one.py", {})


def test_cells_that_are_not_there_are_empty():
    assert pages.table(["a", "b"], [[1, None], [2]]) == "| a | b |\n| --- | --- |\n| 1 |  |\n| 2 |  |"


def test_every_logged_column_is_explained():
    logs, evaluations = (ROOT / "docs" / "logs.md").read_text().split("## `evaluations.csv`")

    def columns_of(text):
        return tuple(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", text, re.MULTILINE))))

    assert columns_of(logs) == (*LOG_COLUMNS, "dead_units_K")
    assert columns_of(evaluations) == Evaluation._fields


def test_every_field_of_a_rollout_stands_in_the_table_of_shapes():
    table = README.read_text().split("| paper (arXiv")[1].split("\n\n")[0]

    assert set(Rollout._fields) <= set(re.findall(r"`(\w+)`", table))


def test_every_flag_of_torchbeasts_preset_is_compared_with_its_own():
    page = (ROOT / "docs" / "from_torchbeast.md").read_text()
    table = page.split("## Flags")[1].split("## Files")[0]
    compared = set(re.findall(r"^\| `--(\w+)`", table, re.MULTILINE))

    # What MonoBeast has no flag for.
    assert set(PRESETS["torchbeast"]) - compared == {
        *("envs_per_actor", "optimizer", "rmsprop_start", "entropy_cost_end"),
    }


@pytest.mark.parametrize("page", PAGES, ids=ids_of(PAGES))
def test_flags_and_commands_that_a_page_names_exist(page):
    text = page.read_text()

    named = {name.removeprefix("no_") for name in re.findall(r"(?<![\w-])--([a-z]\w+)", text)}
    assert named - OTHER_FLAGS <= FLAGS
    assert set(re.findall(r"python -m monobeast ([a-z][\w-]+)", text)) <= set(_COMMANDS)


def anchors_of(page):
    """What leads to the headings of a page, as code hosts name them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_reading_order_names_files_that_exist_and_their_length():
    text = README.read_text().split("**Reading order.**")[1].split("A file imports")[0]
    path, _ = text.split("Then")
    named = re.findall(r"`(\w+(?:\.py|/))`", text)

    assert all((ROOT / "monobeast" / name).exists() for name in named) and len(set(named)) == len(named)
    files = re.findall(r"`(\w+\.py)`", path)
    num_lines = sum(len((ROOT / "monobeast" / name).read_text().splitlines()) for name in files)
    assert f"about {round(num_lines / 500) * 500:,} lines" in path


@pytest.mark.parametrize("page", PAGES, ids=ids_of(PAGES))
def test_what_a_page_links_to_is_there(page):
    for link, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]+))?\)", page.read_text()):
        linked = page.parent / link if link else page
        assert linked.exists(), link
        assert not anchor or anchor in anchors_of(linked), f"{link}#{anchor}"


@pytest.mark.parametrize("page", DOCS, ids=ids_of(DOCS))
def test_the_readme_leads_to_every_page(page):
    assert f"](docs/{page.name})" in README.read_text()
