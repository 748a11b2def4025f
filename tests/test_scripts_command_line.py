"""scripts/command_line.py: what a script starts is of this checkout."""

from pathlib import Path

import command_line
import pytest

SCRIPTS = Path(command_line.__file__).parent


@pytest.mark.parametrize(("before", "kept"), [(None, []), ("", []), ("/a:/b", ["/a", "/b"])])
def test_what_a_script_starts_looks_for_modules_in_named_folders_alone(monkeypatch, before, kept):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if before is not None:
        monkeypatch.setenv("PYTHONPATH", before)

    path = command_line.environment(SCRIPTS)["PYTHONPATH"]

    assert path.split(":") == [str(SCRIPTS.parent), str(SCRIPTS), *kept]
