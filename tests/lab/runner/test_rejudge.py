"""Committed rows are judged and drawn again without a run."""

import io
import json

from rich.console import Console
from tests.lab.studies.synthetic import drawn, run, study

from fairhit.cli import main
from fairhit_lab.runner.rejudge_command import judge_again
from fairhit_lab.studies.shared.study import Verdict

FILES = ("rows.csv", "verdicts.csv", "figure.svg", "figure.png")


def rejudged(folder, made):
    """The studies that have to run again, and what is shown."""
    console = Console(file=io.StringIO(), width=200)
    stale = judge_again(folder / "out", made, console)
    return stale, console.file.getvalue()


def test_the_same_judge_gives_the_same_bytes_from_the_rows(tmp_path):
    """
    A rule for verdicts changes more often than a run of hours is affordable. Rows read back are the rows
    that were written, so files that a crash or an older rule left are replaced by what the run wrote.
    """
    made = {"one": study(drawn(3, series=True))}
    run(tmp_path, made)
    folder = tmp_path / "out" / "one"
    before = {name: (folder / name).read_bytes() for name in FILES}
    about = json.loads((folder / "about.json").read_text())
    for name in FILES[1:]:
        (folder / name).write_text("old")

    stale, _ = rejudged(tmp_path, made)

    assert stale == []
    assert {name: (folder / name).read_bytes() for name in FILES} == before
    after = json.loads((folder / "about.json").read_text())
    assert set(after.pop("judged")) == {"commit", "date"}
    assert after == about


def test_another_judge_sees_the_settings_of_each_row(tmp_path):
    run(tmp_path, {"one": study(drawn(3))})

    def judge(results):
        settings = [results.settings(row) for row in results.rows if row["seed"] == 0]
        numbers = ", ".join(str(each["n"]) for each in settings)
        return [Verdict(claim="new", paper="1", ours=numbers, holds="holds")]

    rejudged(tmp_path, {"one": study(drawn(3), judge=judge)})

    assert 'one,new,paper,1,"0, 1, 2",holds' in (tmp_path / "out/one/verdicts.csv").read_text()


def test_rows_that_lack_what_is_judged_today_are_named_and_kept(tmp_path):
    run(tmp_path, {"one": study(drawn(2))})
    verdicts = (tmp_path / "out" / "one" / "verdicts.csv").read_bytes()

    more = {"speed": lambda _: 1.0, "width": lambda _: 1.0}
    stale, shown = rejudged(tmp_path, {"one": study(drawn(2), measures=more)})

    assert stale == ["one"]
    assert "no column 'width'; run the study again" in shown
    assert (tmp_path / "out" / "one" / "verdicts.csv").read_bytes() == verdicts


def test_a_wrong_command_is_one_line(tmp_path, capsys):
    assert main(["experiment", "rejudge", "no-such", "--results", str(tmp_path)]) == 2
    assert "no-such: there is no study of that name" in capsys.readouterr().err
    assert main(["experiment", "rejudge", "--results", str(tmp_path)]) == 2
    assert "has no folder of a study" in capsys.readouterr().err
