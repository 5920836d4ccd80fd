"""Ctrl-C while a command still loads ends it with status 130, and no traceback."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ENTRY = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["fairhit"]

# The signal comes when the named module is about to be loaded.
INTERRUPT = """
import os, runpy, signal, sys
class CtrlC:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, CtrlC())
sys.argv = ["fairhit", "gateway", "--help"]
"""
SCRIPT = "from {} import {} as main; sys.exit(main())".format(*ENTRY.split(":"))  # as pip writes it
MODULE = "runpy.run_module('fairhit', run_name='__main__', alter_sys=True)"


@pytest.mark.parametrize("start", [SCRIPT, MODULE], ids=["script", "module"])
@pytest.mark.parametrize("module", ["fairhit.cli", "fairhit.core.request", "yaml"])
def test_no_traceback(start: str, module: str):
    code = INTERRUPT.format(module=module) + start

    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )

    assert (ended.returncode, ended.stderr) == (130, "")


def test_nothing_of_ours_is_loaded_before_the_command_answers_to_it():
    """The package itself cannot be guarded: whatever it imports is a traceback."""
    code = "import sys, fairhit; print(*(name for name in sys.modules if 'fairhit' in name))"

    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )

    assert [name for name in loaded.stdout.split() if "__editable__" not in name] == ["fairhit"]


def test_the_public_names_are_there():
    import fairhit

    assert all(getattr(fairhit, name) is not None for name in fairhit.__all__)
    with pytest.raises(AttributeError, match="module 'fairhit' has no attribute 'Unknown'"):
        fairhit.Unknown  # noqa: B018
