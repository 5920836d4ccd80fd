"""A command never overwrites its own input, and a failed run leaves no output behind."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairhit.cli import main
from fairhit_lab.traces.files import written

LINE = '{"id":"1","client":"a","arrival":0,"prompt":[["A",10]],"output_len":3}\n'
SMALL = ["--step-time", "linear:1,0,0", "--kv-tokens", "100"]


@pytest.fixture
def trace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.jsonl").write_text(LINE)
    os.link("t.jsonl", "hard.jsonl")
    os.symlink("t.jsonl", "soft.jsonl")
    return "t.jsonl"


@pytest.mark.parametrize(
    "flags",
    [
        ["--events", "t.jsonl"],
        ["--summary", "./soft.jsonl"],
        ["--summary", "hard.jsonl"],
        ["--events", "new", "--summary", "./new"],
        ["--events", "new", "--summary", "new.part"],
    ],
)
def test_an_output_is_no_input_and_no_other_output(flags, trace, capsys):
    assert main(["simulate", trace, *SMALL, *flags]) == 2

    assert f"{flags[-2]}: expected a file of its own, got {flags[-1]}" in capsys.readouterr().err
    assert Path(trace).read_text() == LINE
    assert not os.path.exists("new")


def test_an_import_does_not_overwrite_its_source(trace, capsys):
    with open("s.csv", "w") as file:
        file.write("client,arrival,input,output\na,0,10,5\n")

    assert main(["trace", "import", "csv", "s.csv", "--out", "s.csv"]) == 2
    assert "--out: expected a file of its own, got s.csv" in capsys.readouterr().err
    assert Path("s.csv").read_text().startswith("client,")


def test_both_may_go_to_a_device(trace):
    assert main(["simulate", trace, *SMALL, "--events", os.devnull, "--summary", os.devnull]) == 0


def test_a_failed_run_leaves_no_summary_and_an_older_one_as_it_was(trace):
    with open("old.json", "w") as file:
        file.write("old")
    with open(trace, "a") as file:
        file.write("{\n")

    for name in ("old.json", "new.json"):
        assert main(["simulate", trace, *SMALL, "--summary", name]) == 2

    assert Path("old.json").read_text() == "old"
    assert sorted(os.listdir()) == ["hard.jsonl", "old.json", "soft.jsonl", "t.jsonl"]


def test_the_error_of_a_full_disk_names_the_requested_file(trace):
    with pytest.raises(OSError, match="No space left") as raised, written("out.jsonl"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert raised.value.filename == "out.jsonl"


def test_a_folder_that_is_not_there_is_named_as_it_was_typed(trace, capsys):
    assert main(["simulate", trace, *SMALL, "--events", "nowhere/e.jsonl"]) == 2
    assert "nowhere/e.jsonl: No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [["simulate", "t.jsonl"], ["trace", "describe", "t.jsonl"], ["trace", "generate", "list"]],
)
def test_a_closed_pipe_ends_the_command_silently(command, trace):
    """As `| head` does; the pipe's other end is closed before anything is written."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "fairhit", *command],
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)

    assert (done.returncode, done.stderr) == (141, b"")
