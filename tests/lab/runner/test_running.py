"""Studies run in processes: the same bytes however many, each case once, and what happens if one dies."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.lab.studies.synthetic import Drawn, drawn, run, study

from fairhit.errors import ConfigError, WorkerLost
from fairhit_lab.report import study_files as output
from fairhit_lab.report.figures import plot
from fairhit_lab.report.folders import read_folder
from fairhit_lab.studies.shared.study import Measured

ROOT = Path(__file__).resolve().parents[3]
TABLES = ("rows.csv", "series.csv", "verdicts.csv")


def tables(folder):
    return [(folder / name).read_bytes() for name in TABLES]


def test_a_study_leaves_its_files(tmp_path):
    status, shown = run(tmp_path, {"a": study(drawn(2, series=True))}, "--seeds", "2")

    assert status == 0
    assert "it moves" in shown and "holds" in shown and "rows.csv" in shown
    names = ["about.json", "figure.png", "figure.svg", *TABLES]
    assert sorted(path.name for path in (tmp_path / "out" / "a").iterdir()) == sorted(names)
    heading, *lines = (tmp_path / "out/a/rows.csv").read_text(encoding="utf-8").splitlines()
    assert heading == "study,policy,quantum,seed,speed,config,commit"
    assert [line.split(",")[:4] for line in lines] == [
        ["a", "dlpm", "0", "0"],
        ["a", "dlpm", "0", "1"],
        ["a", "dlpm", "1", "0"],
        ["a", "dlpm", "1", "1"],
    ]


def test_what_is_written_is_read_as_it_was(tmp_path):
    cases = drawn(2, series=True)
    run(tmp_path, {"a": study(cases)}, "--seeds", "2")

    found = read_folder(tmp_path / "out" / "a", "a", study(cases))

    read = found.results

    speeds = [case.outcome(seed, None).summary["speed"] for case in cases for seed in range(2)]
    assert [row["speed"] for row in read.rows] == speeds
    assert read.series[0]["time_s"] == 0.0 and None in {row["value"] for row in read.series}
    assert found.verdicts[0].claim == "it moves"


def test_the_number_of_processes_and_the_cache_change_no_byte(tmp_path):
    """The first two cases end out of order with two processes."""
    cases = [
        Drawn(labels={"policy": "vtc", "quantum": n}, settings={"n": n}, sleep_s=s, series=True)
        for n, s in enumerate((0.3, 0.0, 0.1, 0.0))
    ]
    run(tmp_path / "one", {"a": study(cases)}, "--jobs", "1", "--seeds", "2")
    run(tmp_path / "two", {"a": study(cases)}, "--jobs", "2", "--seeds", "2", "--no-cache")
    run(tmp_path / "again", {"a": study(cases)}, "--cache", str(tmp_path / "one" / "cache"))
    run(
        tmp_path / "again",
        {"a": study(cases)},
        "--seeds",
        "2",
        "--cache",
        str(tmp_path / "one/cache"),
    )

    once = tables(tmp_path / "one/out/a")
    assert once == tables(tmp_path / "two/out/a") == tables(tmp_path / "again/out/a")
    figures = [
        (tmp_path / run / "out/a/figure.svg").read_bytes() for run in ("one", "two", "again")
    ]
    assert figures[0] == figures[1] == figures[2]


def test_equal_cases_of_two_studies_run_once(tmp_path):
    log = str(tmp_path / "log")
    renamed = [Drawn(labels={"system": "ours", "quantum": 5}, settings={"n": 0}, log=log)]
    studies = {
        "a": study(drawn(2, log=log)),
        "b": study(renamed, title="b"),
    }

    run(tmp_path, studies)

    assert len(Path(log).read_text(encoding="utf-8").splitlines()) == 2 * 5
    rows = [
        read_folder(tmp_path / "out" / name, name, of).results.rows for name, of in studies.items()
    ]
    assert [row["speed"] for row in rows[1]] == [row["speed"] for row in rows[0][:5]]


def test_a_changed_setting_runs_only_what_changed(tmp_path):
    log = str(tmp_path / "log")
    run(tmp_path, {"a": study(drawn(2, log=log))}, "--seeds", "1")
    run(tmp_path, {"a": study(drawn(3, log=log))}, "--seeds", "1")
    assert Path(log).read_text(encoding="utf-8").splitlines() == [
        "{'n': 0} 0",
        "{'n': 1} 0",
        "{'n': 2} 0",
    ]

    run(tmp_path, {"a": study(drawn(3, log=log))}, "--seeds", "1", "--no-cache")
    assert len(Path(log).read_text(encoding="utf-8").splitlines()) == 6


def test_what_is_timed_runs_alone_when_all_else_is_done(tmp_path):
    """Any other run at the same time would be in its numbers."""
    log = str(tmp_path / "log")
    timed = Measured(
        labels={"policy": "dlpm", "quantum": 9},
        function="tests.lab.studies.synthetic:timed",
        arguments={"log": log},
    )

    run(
        tmp_path,
        {"a": study([timed, *drawn(2, log=log, sleep_s=0.2)])},
        "--jobs",
        "2",
        "--seeds",
        "2",
    )

    lines = Path(log).read_text(encoding="utf-8").splitlines()
    assert all(line.startswith("{'n'") for line in lines[:4])
    assert lines[4:] == ["timed 0 begins", "timed 0 ends", "timed 1 begins", "timed 1 ends"]


def test_curves_of_an_earlier_version_do_not_stay(tmp_path):
    run(tmp_path, {"a": study(drawn(1, series=True))}, "--seeds", "1")
    run(tmp_path, {"a": study(drawn(1))}, "--seeds", "1", "--no-cache")

    assert not (tmp_path / "out/a/series.csv").exists()


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_ctrl_c_while_it_draws_leaves_the_older_run_whole(tmp_path, monkeypatch):
    """New rows beside an old figure would look like one result."""
    run(tmp_path, {"a": study(drawn(1, series=True))}, "--seeds", "1")
    (tmp_path / "out" / "a" / "mine.txt").write_text("a note", encoding="utf-8")
    before = contents(tmp_path / "out" / "a")

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(plot, "save_figure", interrupted)
    status, _ = run(tmp_path, {"a": study(drawn(2))}, "--seeds", "1")

    assert status == 130
    assert contents(tmp_path / "out" / "a") == before
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a"]


def test_ctrl_c_while_the_files_move_waits_for_them(tmp_path, monkeypatch):
    run(tmp_path, {"a": study(drawn(1, series=True))}, "--seeds", "1")
    (tmp_path / "out" / "a" / "mine.txt").write_text("a note", encoding="utf-8")
    move = os.replace

    def moved(source, target):
        if Path(target).parent.name == "a":
            signal.raise_signal(signal.SIGINT)
        move(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(output.os, "replace", moved)
        status, _ = run(tmp_path, {"a": study(drawn(2))}, "--seeds", "1", "--no-cache")
    run(tmp_path / "whole", {"a": study(drawn(2))}, "--seeds", "1")

    assert status == 130
    found, whole = contents(tmp_path / "out" / "a"), contents(tmp_path / "whole" / "out" / "a")
    assert found.pop("mine.txt") == b"a note"
    assert found.keys() == whole.keys() and "series.csv" not in found
    timed = {"about.json"}
    assert all(found[name] == whole[name] for name in found.keys() - timed)


def test_a_killed_process_is_an_error_that_names_its_case(tmp_path):
    """As where memory is short. The other study is whole, and the next run need not repeat it."""
    log = str(tmp_path / "log")
    studies = {
        "ill": study(drawn(3, fails="killed")),
        "well": study([Drawn(labels={"quantum": 7}, settings={"n": 7}, log=log)]),
    }

    with pytest.raises(
        WorkerLost, match=r"^ill: policy=dlpm quantum=1 seed=0: its process was killed"
    ):
        run(tmp_path, studies, "--seeds", "1")

    assert not (tmp_path / "out" / "ill").exists()
    assert (tmp_path / "out" / "well" / "rows.csv").exists()
    run(tmp_path, {"well": studies["well"]}, "--seeds", "1")
    assert len(Path(log).read_text(encoding="utf-8").splitlines()) == 1


def test_a_refused_setting_is_one_line_that_names_its_case(tmp_path):
    with pytest.raises(
        ConfigError, match=r"^a: policy=dlpm quantum=1 seed=0: --quantum: expected more$"
    ):
        run(tmp_path, {"a": study(drawn(2, fails="refused"))}, "--seeds", "1")


def test_a_bug_in_a_case_is_raised_with_its_name(tmp_path):
    with pytest.raises(ZeroDivisionError) as caught:
        run(tmp_path, {"a": study(drawn(2, fails="bug"))}, "--seeds", "1")

    assert "in a: policy=dlpm quantum=1 seed=0" in caught.value.__notes__


def test_a_bug_in_a_judge_leaves_the_other_studies_alone(tmp_path):
    def broken(_):
        raise KeyError("speeed")

    with pytest.raises(KeyError, match="speeed"):
        run(
            tmp_path,
            {"ill": study(drawn(1), judge=broken), "well": study(drawn(1))},
            "--seeds",
            "1",
        )

    assert (tmp_path / "out" / "well" / "about.json").exists()
    assert not (tmp_path / "out" / "ill").exists()


SLOW = """
import sys
from pathlib import Path
from tests.lab.studies.synthetic import drawn, run, study
folder = Path(sys.argv[1])
cases = drawn(2, log=str(folder / "log"), sleep_s=0.0) + drawn(9, log=str(folder / "log"), sleep_s=60.0)[2:]
sys.exit(run(folder, {"slow": study(cases)}, "--seeds", "1", "--jobs", "2")[0])
"""


def started(tmp_path):
    """A run of which two cases are done and two others go on for a minute."""
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, str(tmp_path)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    log = tmp_path / "log"
    until = time.monotonic() + 60
    while not log.exists() or log.read_text(encoding="utf-8").count("\n") < 4:
        assert process.poll() is None and time.monotonic() < until, "it never got so far"
        time.sleep(0.05)
    return process


def members(group):
    """Processes of a group that are alive."""
    alive = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, _, pgrp = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
            except OSError:
                continue
            if int(pgrp) == group and state != "Z":
                alive.append(int(entry.name))
    return alive


def assert_gone(group):
    """Soon: Python's own tracker of resources needs a moment to see that it is alone."""
    until = time.monotonic() + 20
    while alive := members(group):
        assert time.monotonic() < until, f"{alive} go on without it"
        time.sleep(0.05)


def test_ctrl_c_ends_it_and_keeps_what_is_done(tmp_path):
    process = started(tmp_path)

    os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to all of them
    _, message = process.communicate(timeout=30)

    assert process.returncode == 130
    assert message.startswith("fairhit: interrupted: 2 of 9 runs are done and kept in ")
    assert message.endswith("written: no study\n") and message.count("\n") == 1
    assert not (tmp_path / "out" / "slow").exists()
    assert len(list((tmp_path / "cache").glob("*.zst"))) == 2
    assert_gone(process.pid)


def test_workers_end_with_their_parent(tmp_path):
    process = started(tmp_path)
    assert len(members(process.pid)) >= 3

    process.kill()
    process.communicate(timeout=30)

    assert_gone(process.pid)
    assert not (tmp_path / "out" / "slow").exists()
