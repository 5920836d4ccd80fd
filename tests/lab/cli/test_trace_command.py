"""`fairhit trace` as a person uses it: files made and described, mistakes answered in one line."""

import gzip
import io
import json
import sys

import pytest

from fairhit.cli import main
from fairhit_lab.cli import row_count
from fairhit_lab.traces import write
from fairhit_lab.traces.importers import FORMATS
from fairhit_lab.traces.trace import read_trace
from fairhit_lab.workloads import GENERATORS

CSV = "client,arrival,input,output\na,0,10,5\nb,2,30,5\n"


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "source.csv"
    path.write_text(CSV)
    return str(path)


def test_a_csv_file_is_imported_and_described(source, tmp_path, capsys):
    out = tmp_path / "t.jsonl.zst"

    assert main(["trace", "import", "csv", source, "--out", str(out)]) == 0
    assert f"2 requests -> {out}" in capsys.readouterr().err
    assert [row.client for row in read_trace(out)] == ["a", "b"]
    assert main(["trace", "describe", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["requests"], found["clients"], found["duration_s"]) == (2, 2, 2)


def test_a_description_shows_figures_clients_and_a_histogram(source, tmp_path, capsys):
    out = str(tmp_path / "t.jsonl")
    main(["trace", "import", "csv", source, "--out", out])
    capsys.readouterr()

    assert main(["trace", "describe", out]) == 0

    shown = capsys.readouterr().out
    assert "2 requests of 2 clients in 2.0 s" in shown
    assert "prefix share 0.000" in shown
    assert "input tokens: mean 20, p50 10, p99 30" in shown
    assert "█" in shown
    assert "66.7%" in shown


def test_the_description_of_an_empty_trace_is_no_error(tmp_path, capsys):
    (tmp_path / "t.jsonl").write_text("")

    assert main(["trace", "describe", str(tmp_path / "t.jsonl"), "--no-prefixes"]) == 0
    assert "0 requests of 0 clients" in capsys.readouterr().out


def test_a_trace_goes_through_standard_output_and_input(monkeypatch, capsys):
    made = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stdout", made)
    assert main(["trace", "generate", "tot", "--set", "clients=1", "programs_each=1"]) == 0
    monkeypatch.undo()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(made.buffer.getvalue())))

    assert main(["trace", "describe", "-", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["requests"] == 30


def test_the_seed_decides(tmp_path):
    def made(name, *flags):
        assert main(["trace", "generate", "flood", "--out", str(tmp_path / name), *flags]) == 0
        return (tmp_path / name).read_bytes()

    assert made("a.jsonl.gz") == made("b.jsonl.gz", "--seed", "0")
    assert gzip.decompress(made("a.jsonl.gz")) != gzip.decompress(made("c.jsonl.gz", "--seed", "1"))


def test_list_and_help_name_everything(capsys):
    assert main(["trace", "generate", "list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    with pytest.raises(SystemExit):
        main(["trace", "import", "--help"])
    helped = capsys.readouterr().out

    assert [line.split()[0] for line in listed] == list(GENERATORS)
    assert all(f"\n  {name} " in helped for name in (*FORMATS, "vtc-results"))


@pytest.mark.parametrize(
    ("command", "expected"),
    [(["generate", "tot-s1"], "--set branches=4,2"), (["import", "mooncake"], "--set spread=0")],
)
def test_settings_are_shown_with_their_defaults(command, expected, capsys):
    assert main(["trace", *command, "--settings"]) == 0
    assert expected in capsys.readouterr().out


BAD = [
    ([], "required: COMMAND"),
    (["generate", "tott"], "invalid choice: 'tott'"),
    (["generate", "tot", "--set", "branches=0"], "--set branches: expected whole numbers above 0"),
    (["generate", "tot", "--set", "wings=2"], "--set wings=2: expected KEY=VALUE with a key of clients"),
    (["generate", "tot", "--seed", "x"], "--seed: expected a whole number, got 'x'"),
    (["generate", "tot", "--out", "no/such/dir/t.jsonl"], "no/such/dir/t.jsonl: No such file"),
    (["import", "xlsx", "a"], "invalid choice: 'xlsx'"),
    (["import", "csv"], "trace import csv: expected at least one file"),
    (["import", "vtc", "a", "b"], "expected one file, got 2"),
    (["import", "servegen", "a"], "expected two files, arrivals and lengths, got 1"),
    (["import", "csv", "no-such.csv"], "no-such.csv: No such file or directory"),
    (["import", "mooncake", "SOURCE"], "1: malformed JSON"),
    (["import", "mooncake", "SOURCE", "--set", "scale=0"], "--set scale: expected a whole number from"),
    (["import", "azure", "SOURCE", "SOURCE"], "expected files of different names"),
    (["import", "vtc-results", "SOURCE"], "expected files and --out FOLDER"),
    (["describe", "no-such.jsonl"], "no-such.jsonl: No such file or directory"),
    (["describe", "SOURCE"], "1: malformed JSON"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "expected"), BAD)
def test_a_bad_command_is_one_line_and_status_2(arguments, expected, source, tmp_path, capsys):
    try:
        status = main(["trace", *(source if word == "SOURCE" else word for word in arguments)])
    except SystemExit as exit_:
        status = exit_.code
    said = capsys.readouterr().err

    assert status == 2
    assert said.count("\n") == 1, said
    assert expected in said
    assert [path.name for path in tmp_path.iterdir()] == ["source.csv"]


def test_an_interrupted_command_leaves_no_file_and_says_so(tmp_path, monkeypatch, capsys):
    def interrupted(row):
        raise KeyboardInterrupt

    monkeypatch.setattr(write, "line", interrupted)
    out = tmp_path / "t.jsonl"

    assert main(["trace", "generate", "tot", "--out", str(out)]) == 130
    assert f"interrupted: {out} was not written" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("shown_after_s", "shown"), [(0.0, True), (3600.0, False)])
def test_progress_is_shown_once_it_takes_a_while(shown_after_s, shown, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(row_count, "SHOWN_AFTER_S", shown_after_s)

    assert list(row_count.counted(range(2000), "reading")) == list(range(2000))
    assert ("1,536 rows" in terminal.getvalue()) == shown
