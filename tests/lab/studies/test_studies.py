"""Checks of every study in STUDIES; nothing is simulated here."""

import pickle
import re
from importlib import import_module
from itertools import islice
from typing import get_args

import pytest
from tests.lab.studies.synthetic import METRICS, rows_of
from tests.lab.traces.public_data import DATA, needs_data

from fairhit_lab.report.figures import plot
from fairhit_lab.report.figures.drawn import ADDED
from fairhit_lab.runner.record import config_of, configs_of, key_of
from fairhit_lab.sim.config import SimConfig
from fairhit_lab.studies import STUDIES, study_of
from fairhit_lab.studies.shared.study import Generated, Holds, Imported, Measured, Simulated

RESERVED = {"seed", "time_s", "client", "metric", "value", *ADDED}
NUMBER = re.compile(r"[-+]?[\d.]+(e[-+]?\d+)?", re.IGNORECASE)

every_study = pytest.mark.parametrize("name", STUDIES)


def cases_of(name):
    """Quick ones and full ones."""
    study = study_of(name)
    return {quick: study.cases(quick) for quick in (True, False)}


def both(name):
    """Quick and full cases together."""
    return [case for cases in cases_of(name).values() for case in cases]


def sources_of(name, kind):
    """Sources of a kind, each once, as reading one takes its time."""
    found = [getattr(case, "source", None) for case in both(name)]
    return list({repr(source): source for source in found if isinstance(source, kind)}.values())


@every_study
def test_it_says_what_it_is(name):
    study = study_of(name)

    assert study.title and study.source and study.shows
    assert re.fullmatch(r"quick .+; full .+", study.takes), study.takes
    assert "\n" not in study.title + study.source + study.shows + study.takes


@every_study
def test_labels_tell_its_cases_apart(name):
    """
    Labels become columns: the same ones in each row, with values that read back from a file unchanged.
    """
    study = study_of(name)
    for quick, cases in cases_of(name).items():
        assert cases, f"quick={quick}"
        columns = list(cases[0].labels)
        assert not set(columns) & (RESERVED | set(study.measures))
        assert all(list(case.labels) == columns for case in cases)
        values = [tuple(case.labels.values()) for case in cases]
        assert len(set(values)) == len(values)
        for label in {label for labels in values for label in labels}:
            assert type(label) in {str, int, float}, label
            assert not isinstance(label, str) or (label and not NUMBER.fullmatch(label)), label


@every_study
def test_its_cases_travel_and_have_a_name(name):
    for cases in cases_of(name).values():
        assert pickle.loads(pickle.dumps(cases)) == cases
        assert {config_of(case) for case in cases} == set(configs_of(iter(cases)))
        assert key_of(cases[0], 0, None) != key_of(cases[0], 1, None)


@every_study
def test_quick_is_no_more_than_full(name):
    cases = cases_of(name)

    assert len(cases[True]) <= len(cases[False])


@every_study
def test_settings_are_accepted(name):
    """The simulator's when they are put together, a workload's when its first request is drawn."""
    for case in both(name):
        if isinstance(case, Simulated):
            SimConfig(**{"seed": 0, **case.settings})
        if isinstance(case, Measured):
            module, _, function = case.function.partition(":")
            assert callable(getattr(import_module(module), function))
    for source in sources_of(name, Generated):
        assert list(islice(source.rows(0, None), 1))


@needs_data
@every_study
def test_its_data_is_there(name):
    for case in both(name):
        assert all((DATA / needed).exists() for needed in case.needs), case.needs
    for source in sources_of(name, Imported):
        assert list(islice(source.rows(0, DATA), 1))


@every_study
def test_its_panels_show_columns_that_exist(name):
    study = study_of(name)
    cases = study.cases(False)
    labels, measures = set(cases[0].labels), set(study.measures)
    for panel in study.panels:
        where = labels | ({"client"} if panel.of == "series" else set())
        assert set(panel.where) <= where, panel.title
        assert panel.hue in where | {""}, panel.title
        fitting = [
            case
            for case in cases
            if all(case.labels.get(name, want) == want for name, want in panel.where.items())
        ]
        assert fitting, f"{panel.title}: no case has {panel.where}"
        if panel.of == "series":
            assert panel.x in {"", "time_s"}
            simulated = [case for case in fitting if isinstance(case, Simulated)]
            assert all(case.series for case in simulated), f"{panel.title}: no curves are kept"
            assert not simulated or panel.y in METRICS
        elif panel.form == "table":
            assert panel.columns and set(panel.columns) <= labels | measures
            assert (panel.x or panel.hue) and panel.x in labels | {""}
        else:
            assert panel.y in measures, panel.title
            assert panel.x in labels | (measures if panel.form == "path" else set())


@every_study
@pytest.mark.parametrize(("quick", "seeds"), [(True, 1), (False, 5)])
def test_its_claims_are_judged_from_rows_alone(name, quick, seeds):
    """For any numbers each claim has a verdict, and a reason unless it holds."""
    study = study_of(name)

    verdicts = study.judge(rows_of(study, quick=quick, seeds=seeds))

    assert verdicts or quick
    for verdict in verdicts:
        assert verdict.claim and verdict.paper and verdict.ours
        assert verdict.holds in get_args(Holds)


@every_study
def test_its_figure_can_be_drawn(name, tmp_path):
    """With the full cases; the quick ones are drawn for real (tests/e2e/experiments)."""
    study = study_of(name)
    path = tmp_path / "figure.svg"

    plot.save_figure([path], study, rows_of(study, quick=False, seeds=2))

    assert path.read_bytes().startswith(b"<?xml")
