"""The VTC paper's cases, the numbers read from their rows, and how its tables are judged."""

import pytest
from tests.lab.studies.synthetic import rows_of
from tests.lab.traces.public_data import DATA, needs_data

from fairhit.core.costs import PROFILED
from fairhit_lab.metrics.vtc_table import Row, VtcTable
from fairhit_lab.studies import STUDIES, study_of
from fairhit_lab.studies.shared.results import Results
from fairhit_lab.studies.shared.study import Generated, Outcome
from fairhit_lab.studies.vtc.shared import measured, printed, simulated
from fairhit_lab.studies.vtc.tables import ChargedLate, table_study
from fairhit_lab.studies.vtc_artifact import measures as vtc_measures
from fairhit_lab.studies.vtc_artifact.case import curves
from fairhit_lab.studies.vtc_artifact.measures import TABLE

FEW = Generated(workload="uniform", settings={"rates": (6, 12), "duration": 60})


def test_a_request_to_an_idle_engine_is_its_callers():
    """
    Callers have their own clock and their own count of tokens; the engine's are a little more.
    """
    rows = simulated("vtc", FEW).outcome(0, None).requests

    assert {(row.client, row.input_len, row.output_len) for row in rows} == {
        ("c0", 256, 256),
        ("c1", 256, 256),
    }
    assert [row.arrival_s for row in rows] == sorted(row.arrival_s for row in rows)
    assert all(0.012 < row.first_token_s - row.arrival_s < 1 for row in rows)


def test_the_first_seed_has_no_jitter_and_each_seed_is_one_run():
    calm = Generated(workload="increase", settings={"duration": 60})  # nothing of it is drawn
    case = simulated("vtc", calm)
    without = simulated("vtc", calm, settings={"jitter": 0.0})

    assert case.outcome(0, None) == without.outcome(1, None)
    assert case.outcome(1, None) == case.outcome(1, None)
    assert case.outcome(1, None) != case.outcome(2, None)


def test_curves_are_kept_of_those_who_are_shown():
    points = simulated("vtc", FEW, shown=("c1",), pieces=5).outcome(0, None).series

    assert {point.client for point in points} == {"c1", "all"}
    assert len([point for point in points if point.metric == "difference"]) == 5


@needs_data
@pytest.mark.parametrize("name", ["vtc-table2", "vtc-table3", "vtc-table4", "vtc-table5"])
def test_the_authors_rows_give_what_they_print(name):
    """If not, we would compare two different measures; their rows have three decimals."""
    cases = study_of(name).cases(False)
    lines, runs = (
        {case.labels["scheduler"]: case for case in cases if case.labels["origin"] == origin}
        for origin in ("printed", "measured")
    )
    # Those called "vtc (how)" are other runs than the printed ones.
    runs = {name: run for name, run in runs.items() if "(" not in name}

    assert runs and set(runs) <= set(lines)
    for scheduler, run in runs.items():
        theirs, given = (
            {metric: of(case.outcome(0, DATA)) for metric, of in TABLE.items()}
            for case in (run, lines[scheduler])
        )
        assert theirs["max_diff"] == pytest.approx(given["max_diff"], abs=0.02)
        assert theirs["avg_diff"] == pytest.approx(given["avg_diff"], abs=0.02)
        assert theirs["tokens_per_s"] == pytest.approx(given["tokens_per_s"], abs=1)


@needs_data
def test_no_seed_changes_what_was_measured():
    case = measured("fcfs", "overload")

    assert case.outcome(0, DATA) == case.outcome(1, DATA)


def test_charged_late_or_at_once_a_request_costs_the_same():
    late = ChargedLate()

    assert late.prefill(100) == 0
    assert late.decode(100, 0, 1) + late.decode(100, 1, 9) == (
        PROFILED.prefill(100) + PROFILED.decode(100, 0, 10)
    )


def test_a_printed_line_has_the_tables_numbers_and_no_others():
    (case,) = printed({"vtc": VtcTable(3, 2, 1, 900)})
    outcome = case.outcome(0, None)

    assert [of(outcome) for of in TABLE.values()] == [3, 2, 1, 900]
    assert vtc_measures.rate("c0")(outcome) is None
    assert vtc_measures.response("c0")(outcome) is None
    assert vtc_measures.most_difference(outcome) is None
    assert vtc_measures.share_served(outcome) is None


# Two clients for 300 s: a gets 2 * 60 + 30 tokens of service every 10 s, b a third of that; b waits longer.
ROWS = [
    Row(client, 10.0 * n, 10.0 * n + waits, 10.0 * n + waits + 5, input_len, output_len)
    for n in range(30)
    for client, waits, input_len, output_len in (("a", 1.0, 30, 60), ("b", 3.0, 10, 20))
]
RAN = Outcome(summary={}, series=list(curves(ROWS, 10)), requests=ROWS)


def test_rates_and_responses_of_a_client():
    assert vtc_measures.rate("a", 0, 100)(RAN) == pytest.approx(15)
    assert vtc_measures.rate("b", 0, 100)(RAN) == pytest.approx(5)
    assert vtc_measures.rate_of_all(RAN) == pytest.approx(20, rel=0.01)
    assert vtc_measures.response("b")(RAN) == pytest.approx(3)
    assert vtc_measures.response("a", "b")(RAN) == pytest.approx(2)
    assert vtc_measures.longest_response("a")(RAN) == pytest.approx(1)
    assert vtc_measures.longest_mean_response("b")(RAN) == pytest.approx(1)


def test_who_got_how_much_of_whom():
    assert vtc_measures.evenness({"a": 1, "b": 1})(RAN) == pytest.approx(1 / 3, rel=0.02)
    assert vtc_measures.evenness({"a": 3, "b": 1})(RAN) == pytest.approx(1, rel=0.02)
    assert vtc_measures.least_share("a", "b")(RAN) == pytest.approx(1 / 3, rel=0.02)
    assert vtc_measures.total_least(RAN) == pytest.approx(1, rel=0.05)


def test_a_difference_that_grows():
    """Ten ticks, 29 s apart. At 116 s a had 12 requests of 150 tokens each, b had 11.6 of 50."""
    half, last = (vtc_measures.difference_at(share)(RAN) for share in (0.5, 1.0))

    assert half == pytest.approx(12 * 150 - 11.6 * 50)
    assert last == pytest.approx(26 * 150 - 26 * 50)  # at 261 s
    assert vtc_measures.most_difference(RAN) == last
    at_145_s = 14.8 * 150 - 14.4 * 50
    assert vtc_measures.later_swing(RAN) == pytest.approx(last - at_145_s)


def test_rejected_requests_count_for_nothing_but_their_share():
    rejected = Row("b", 5.0, 5.0, 5.0, 10, 20, aborted=True)
    outcome = Outcome(summary={}, requests=[*ROWS, rejected])

    assert vtc_measures.share_served(outcome) == pytest.approx(60 / 61)
    assert vtc_measures.response("b")(outcome) == pytest.approx(3)


LINES = {"vtc": VtcTable(300, 200, 1, 800), "fcfs": VtcTable(600, 400, 1, 800)}


def verdicts_of(*, diff_var=1.0, request=600, **avg_diffs):
    """Of a table whose Avg Diff came out so, by seed; all else is as printed."""
    study = table_study(
        "title",
        "Table 0",
        LINES,
        workload=FEW,
        rows="",
        with_rows=(),
        shows="",
        takes="",
        request=request,
    )
    rows = [
        {
            "scheduler": name,
            "origin": "simulated",
            "seed": seed,
            "max_diff": LINES[name.partition(" ")[0]].max_diff,
            "avg_diff": value,
            "diff_var": diff_var,
            "tokens_per_s": 800.0,
        }
        for name, values in avg_diffs.items()
        for seed, value in enumerate(values)
    ]
    return study.judge(Results(rows))


def test_a_line_that_is_as_printed_holds():
    vtc, fcfs, order = verdicts_of(vtc=[185, 190], fcfs=[410, 450])

    assert [vtc.holds, fcfs.holds, order.holds] == ["holds"] * 3
    assert vtc.paper == "Max Diff 300, Avg Diff 200, Diff Var 1, tokens/s 800"


def test_a_line_says_what_is_off():
    vtc, *_ = verdicts_of(vtc=[232, 260], fcfs=[400, 400])

    assert vtc.holds == "does not hold"
    assert vtc.why == "off: Avg Diff by +23 % (+16 % to +30 % by seed), 4.6 requests a minute"


@pytest.mark.parametrize(
    ("request_is", "diff_var", "holds"),
    [
        (0, 1.29, "holds"),
        (0, 1.31, "does not hold"),
        (120, 4.9, "holds"),  # by less than a request of 2 tokens/s, squared
        (120, 5.1, "does not hold"),
    ],
)
def test_the_variance_of_differences_is_judged_too(request_is, diff_var, holds):
    vtc, *_ = verdicts_of(diff_var=diff_var, request=request_is, vtc=[200], fcfs=[400])

    assert vtc.holds == holds
    assert ("Diff Var" in vtc.why) == (holds != "holds")


def test_what_is_many_times_the_printed_value_is_a_factor():
    vtc, *_ = verdicts_of(diff_var=256.0, request=0, vtc=[200], fcfs=[400])

    assert vtc.why == "off: Diff Var by 256x"


def test_other_cases_of_a_scheduler_are_shown_where_it_is_off():
    verdicts = verdicts_of(**{"vtc": [232, 260], "fcfs": [400, 400], "vtc (late)": [250, 270]})

    assert len(verdicts) == 3
    assert verdicts[0].why.endswith(
        "; vtc (late), simulated: Max Diff 300, Avg Diff 260 (250 to 270), Diff Var 1, tokens/s 800"
    )


def test_a_line_that_is_as_printed_under_other_settings_holds_only_there():
    verdicts = verdicts_of(**{"vtc": [232, 260], "fcfs": [400, 400], "vtc (600 s)": [195, 205]})

    assert verdicts[0].holds == "holds under conditions only"
    assert verdicts[0].why.startswith("vtc (600 s); not as stated; off: Avg Diff by +23 %")


def test_a_printed_value_among_the_seeds_holds():
    vtc, *_ = verdicts_of(vtc=[190, 260, 270], fcfs=[400, 400, 400])

    assert vtc.holds == "holds"


@pytest.mark.parametrize(
    ("vtc", "fcfs", "holds"),
    [
        ([200, 210], [390, 400], "holds"),
        ([200, 395], [390, 400], "holds in the median only"),  # the seeds do not tell
        ([410, 420], [390, 400], "does not hold"),
        ([410], [400], "holds under conditions only"),  # and neither does one seed
    ],
)
def test_the_order_is_judged_over_the_seeds(vtc, fcfs, holds):
    *_, order = verdicts_of(vtc=vtc, fcfs=fcfs)

    assert order.holds == holds
    assert order.paper == "vtc < fcfs"


@pytest.mark.parametrize("name", [name for name in STUDIES if name.startswith("vtc-fig")])
def test_reasons_are_made_of_the_rows_numbers(name):
    """
    A sentence that stands there whatever was measured explains nothing: other rows, other reasons.
    """
    study = study_of(name)
    ones, others = (study.judge(rows_of(study, quick=False, seeds=seeds)) for seeds in (2, 5))

    reasons = [(one.why, other.why) for one, other in zip(ones, others, strict=True)]
    assert any(one and other for one, other in reasons)
    assert all(one != other for one, other in reasons if one and other)
