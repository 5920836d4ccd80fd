"""`fairhit experiment` from the command line: bad input is one line and exit 2; `all` and its data."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.lab.studies.synthetic import Drawn, drawn, rows_of, study

from fairhit.cli import main
from fairhit_lab.runner import all_command, study_command
from fairhit_lab.runner.registry import EXPERIMENTS, OTHERS
from fairhit_lab.sim.config import SimConfig
from fairhit_lab.studies import STUDIES
from fairhit_lab.studies.shared import claims, results
from fairhit_lab.studies.shared import study as fairhit_study


@pytest.fixture(autouse=True)
def nothing_outside(tmp_path, monkeypatch):
    """No test may find the user's cache or data, nor leave results where it was started."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("FAIRHIT_DATA", raising=False)


@pytest.fixture
def studies(monkeypatch):
    """Two studies of no time in the place of all: one needs data."""
    needy = [Drawn(labels={"quantum": 3}, settings={"n": 3}, needs=("mine.csv",))]
    made = {"plain": study(drawn(2)), "needy": study(needy)}
    for module in (all_command, study_command):
        monkeypatch.setattr(module, "study_of", made.__getitem__)
    monkeypatch.setattr(all_command, "STUDIES", dict.fromkeys(made, ""))
    monkeypatch.setattr(all_command, "OTHERS", {})
    return made


def failed(capsys, *arguments):
    """The error line of a wrong command."""
    try:
        status = main(["experiment", *map(str, arguments)])
    except SystemExit as left:
        status = left.code
    assert status == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1, message
    return message


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--seeds", "0"], "--seeds: expected a whole number from 1, got 0"),
        (["--seeds", "-1", "--quick"], "--seeds: expected a whole number from 1, got -1"),
        (["--seeds", "many"], "argument --seeds: invalid int value: 'many'"),
        (["--jobs", "0"], "--jobs: expected a whole number from 1, got 0"),
        (["--out", "file"], "--out: file: File exists"),
        (["--out", "file/below"], "--out: file/below: Not a directory"),
        (
            ["--cache", "file/below"],
            "--cache: file/below: Not a directory (--no-cache does without)",
        ),
        (["--speed"], "unknown flag --speed"),
    ],
)
def test_a_wrong_flag_is_one_line(flags, line, tmp_path, capsys):
    (tmp_path / "file").write_bytes(b"")

    assert line in failed(capsys, next(iter(STUDIES)), *flags)
    assert not (tmp_path / "results").exists() or "cache" in line


def test_an_unknown_name_is_one_line_with_the_known_ones(capsys):
    message = failed(capsys, "fig99")

    assert "got 'fig99'" in message
    assert all(name in message for name in (*OTHERS, *STUDIES, "all", "list"))


def test_list_shows_name_source_and_time_without_drawing_anything():
    """
    Nor does it need what draws: `list` is what one tries first.
    """
    code = (
        "import sys; from fairhit.cli import main; status = main(['experiment', 'list']);"
        "sys.exit(status or 'matplotlib' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, env={**os.environ, "COLUMNS": "80"}, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for name, experiment in EXPERIMENTS.items():
        (at,) = [at for at, line in enumerate(lines) if line.split(maxsplit=1)[0] == name]
        assert experiment.takes in lines[at] and experiment.source in lines[at]
        assert lines[at + 1].strip() == experiment.summary


def test_missing_data_is_said_before_anything_runs(studies, tmp_path, capsys):
    line = "--data: needed, or FAIRHIT_DATA: the folder of workload data that holds mine.csv"
    assert line in failed(capsys, "all", "--quick")

    (tmp_path / "data").mkdir()
    line = "--data: data has no mine.csv (for needy; --skip-missing-data leaves it out)"
    assert line in failed(capsys, "all", "--data", "data")
    assert not (tmp_path / "results").exists()


def test_what_lacks_data_can_be_left_out_and_is_named(studies, tmp_path, capsys):
    assert main(["experiment", "all", "--quick", "--skip-missing-data"]) == 0

    assert "left out: needy: --data: needed" in capsys.readouterr().out
    assert [path.name for path in (tmp_path / "results" / "quick").iterdir()] == ["plain"]


def test_all_runs_everything_and_the_environment_names_the_data(
    studies, tmp_path, monkeypatch, capsys
):
    (tmp_path / "mine.csv").write_bytes(b"")
    monkeypatch.setenv("FAIRHIT_DATA", str(tmp_path))

    assert main(["experiment", "all", "--quick", "--jobs", "2", "--out", "there"]) == 0

    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == ["needy", "plain"]
    shown = capsys.readouterr()
    assert shown.out.count("it moves") == 2 and shown.err == ""
    assert max(map(len, shown.out.splitlines())) <= 100


def test_a_quick_run_replaces_no_full_one(studies, tmp_path, capsys):
    """Neither unasked nor asked; a full run replaces what it likes, and so does a quick one a quick one."""
    assert main(["experiment", "all", "--skip-missing-data", "--seeds", "1"]) == 0
    full = tmp_path / "results" / "experiments" / "plain" / "about.json"
    before = full.read_bytes()
    for _ in range(2):
        assert main(["experiment", "all", "--skip-missing-data", "--quick"]) == 0
    assert full.read_bytes() == before
    capsys.readouterr()

    message = failed(
        capsys, "all", "--skip-missing-data", "--quick", "--out", "results/experiments"
    )

    assert (
        "--out: results/experiments/plain holds a full run, which --quick would replace" in message
    )
    assert full.read_bytes() == before
    assert main(["experiment", "all", "--skip-missing-data", "--out", "results/quick"]) == 0


def test_the_pages_study_is_one():
    """The page's example builds its cases and judges rows."""
    page = Path(__file__).resolve().parents[3] / "docs" / "reference" / "experiments.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {
        each: getattr(module, each)
        for module in (fairhit_study, results, claims)
        for each in (
            "Case", "Generated", "Results", "Sequence", "Simulated", "Verdict", "above", "judged",
        )
        if hasattr(module, each)
    }  # fmt: skip
    exec(compile(code, str(page), "exec"), names)
    made = replace(
        study([]), cases=names["cases"], judge=names["judge"], measures={"throughput": len}
    )

    for case in made.cases(True):
        SimConfig(**case.settings)
        assert next(case.source.rows(0, None))
    assert made.judge(rows_of(made, quick=True, seeds=2))
