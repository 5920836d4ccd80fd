"""The committed examples: valid, small, and what their commands make."""

import gzip
import re
import shlex
from pathlib import Path

import pytest

from fairhit.cli import main
from fairhit_lab.traces.trace import read_trace

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
COMMANDS = re.findall(r"`fairhit (trace generate [^`]*)`", (EXAMPLES / "README.md").read_text())


def content(path: Path) -> bytes:
    # Packed bytes are those of one zlib; what is inside is the same everywhere.
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split()[2])
def test_each_example_is_what_its_command_makes(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").mkdir()
    words = shlex.split(command)

    assert main(words) == 0

    made = tmp_path / words[-1]
    assert content(made) == content(ROOT / words[-1])


def test_every_example_has_its_command_and_is_small():
    files = {path.name for path in EXAMPLES.glob("*.jsonl*")}

    assert files == {Path(shlex.split(command)[-1]).name for command in COMMANDS}
    assert max((EXAMPLES / name).stat().st_size for name in files) < 60_000


def test_the_examples_use_the_whole_format():
    rows = [row for path in EXAMPLES.glob("*.jsonl*") for row in read_trace(path)]

    assert any(row.after for row in rows)
    assert any(row.output for row in rows)
    assert any(row.weight for row in rows)
    assert any(row.cancel_us for row in rows)
    assert any(row.max_tokens > row.output_len for row in rows)
