"""What a run could have shown follows from what its clients ask for, and when."""

import csv
from pathlib import Path

import pytest

from fairhit_lab.metrics.vtc_table import Row
from fairhit_lab.studies.shared.claims import ANY, could_show
from fairhit_lab.studies.shared.limits import (
    ends_ratio,
    most_throughput,
    ratio_limits,
    throughput_ratio,
    waits_ratio,
)
from fairhit_lab.studies.shared.measures import while_arriving
from fairhit_lab.studies.shared.results import Results
from fairhit_lab.studies.shared.study import Generated, Outcome

SOURCE = {"workload": "tot-even", "settings": {"clients": 2, "rates": (0.1,), "duration": 60}}


def results(stop_s=None):
    config = {"source": SOURCE} | ({"stop_s": stop_s} if stop_s else {})
    both = {"seed": 0, "config": "x", "wait_s": 2.0, "makespan_s": 100.0}
    rows = [
        {**both, "system": "a", "throughput": 30.0},
        {**both, "system": "b", "throughput": 10.0},
    ]
    return Results(rows, configs={"x": config})


def test_no_system_serves_more_than_is_asked_for():
    requests = list(Generated(**SOURCE).rows(0, None))
    asked = sum(len(row.prompt) + 2 * row.output_len for row in requests)
    last_s = max(row.arrival_us for row in requests) / 1e6

    limit = throughput_ratio(results(), {"system": "a"}, {"system": "b"})

    assert (limit.low, limit.high) == (0, pytest.approx(asked / last_s / 10))
    tokens = sum(len(row.prompt) + row.output_len for row in requests)
    assert most_throughput(results(), results().rows[0], output_weight=1) == tokens / last_s
    assert ends_ratio(results(), {"system": "a"}, {"system": "b"}).low == last_s / 100
    assert waits_ratio(results(), "wait_s", {"system": "a"}, {"system": "b"}).high == 50


def test_without_settings_no_limit_is_known():
    bare = Results(results().rows)

    assert throughput_ratio(bare, {"system": "a"}, {"system": "b"}) is None


def test_the_limit_of_a_ratio_is_that_of_its_measure():
    """Twelve seconds to the stop, over a wait of two; an index of 1 over one of 0.8; gaps have no limit."""
    found = results(stop_s=12)
    given = [{**row, "jain_system": 0.8, "gap": 7.0} for row in found.rows]
    found = Results(given, configs=found.configs)
    pair = {"system": "a"}, {"system": "b"}

    assert ratio_limits(found, "wait_s", *pair) == could_show(0, 6)
    assert ratio_limits(found, "jain_system", *pair) == could_show(0, 1.25)
    assert ratio_limits(found, "gap", *pair) == ANY
    assert ratio_limits(found, "throughput", *pair) == throughput_ratio(found, *pair)
    assert ratio_limits(found, "wait_s", {"system": "a"}, {"system": "none"}) is None


def test_every_committed_verdict_says_what_its_run_could_have_shown():
    experiments = Path(__file__).parents[3] / "benchmarks/results/experiments"
    found = list(experiments.glob("*/verdicts.csv"))
    assert len(found) == sum(each.is_dir() for each in experiments.iterdir()) > 0
    for path in found:
        with path.open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                unknown = row["holds"] == "not comparable" and "no value" in row["why"]
                assert row["least"] or row["greatest"] or unknown, (path.parent.name, row["claim"])


def test_service_is_counted_until_most_requests_have_arrived():
    """
    Of ten requests nine have arrived at 9 s; the one that ends then is 10 + 2 x 5 tokens.
    """
    rows = [Row("c", float(n), n + 0.5, 9.0 if n == 1 else 99.0, 10, 5) for n in range(1, 11)]
    outcome = Outcome(summary={}, requests=rows)

    assert while_arriving(0.9)(outcome) == 20 / 9
    assert while_arriving(0.9, served=False)(outcome) == 180 / 9
