"""`fairhit experiment all --quick` for real: every study leaves rows, an answer to its claims, a figure.

Eight minutes on two cores are its budget (docs/reference/experiments.md); here it may take what it takes.
"""

import csv
import json
import subprocess
import sys
from typing import get_args

import pytest

from fairhit_lab.studies import STUDIES, study_of
from fairhit_lab.studies.shared.study import Holds
from tests.lab.traces.public_data import DATA, needs_data

pytestmark = [pytest.mark.e2e, needs_data]

HOLDS = set(get_args(Holds))
TIMEOUT_S = 3600  # of a run that hangs


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """The folder of results, after one run of it all."""
    folder = tmp_path_factory.mktemp("all")
    places = ["--out", folder / "out", "--cache", folder / "cache", "--data", DATA]
    done = subprocess.run(
        [sys.executable, "-m", "fairhit", "experiment", "all", "--quick", *map(str, places)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stderr == ""
    return folder / "out"


def table(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_is_whole(everything, name):
    study, folder = study_of(name), everything / name
    cases = study.cases(True)

    rows, verdicts = table(folder / "rows.csv"), table(folder / "verdicts.csv")

    assert len(rows) == len(cases)
    columns = [*cases[0].labels, "seed", *study.measures]
    assert list(rows[0]) == ["study", *columns, "config", "commit"]
    for row in rows:
        assert any(row[measure] for measure in study.measures), f"nothing was measured: {row}"
    assert verdicts
    assert {verdict["holds"] for verdict in verdicts} <= HOLDS
    assert all(verdict["ours"] for verdict in verdicts)
    if any(panel.of == "series" for panel in study.panels):
        drawn = {point["metric"] for point in table(folder / "series.csv")}
        assert {panel.y for panel in study.panels if panel.of == "series"} <= drawn
    assert (folder / "figure.svg").read_bytes().startswith(b"<?xml")
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    assert about["quick"] and about["seeds"] == [0] and about["runs"] == len(cases)


def test_what_is_no_study_ran_too(everything):
    record = json.loads((everything / "vtc-calibration" / "rows.json").read_text(encoding="utf-8"))

    assert len(record["rows"]) == 6
    assert (everything / "vtc-calibration" / "figure.svg").exists()
