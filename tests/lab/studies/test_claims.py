"""A claim is judged by every seed and every setting; each of the four ways out can be reached."""

import pytest
from tests.lab.studies.synthetic import rows_of

from fairhit_lab.metrics.series import SeriesPoint
from fairhit_lab.studies import study_of
from fairhit_lab.studies.dlpm.fig7_claims import FEWEST, Fig7Point, Fig7Table, judge
from fairhit_lab.studies.dlpm.shared import STATED
from fairhit_lab.studies.shared.claims import (
    Claim,
    above,
    below,
    each_judged,
    judged,
    ran,
    within,
    words,
)
from fairhit_lab.studies.shared.measures import fewest_programs, lead_of, response_peak, slow_share
from fairhit_lab.studies.shared.results import Results, interval_of
from fairhit_lab.studies.shared.study import Outcome


def verdict(ours, elsewhere=None, **given):
    return judged(
        claim="more",
        paper="above 1",
        ours=interval_of(ours),
        rule=above(1),
        elsewhere={name: interval_of(values) for name, values in (elsewhere or {}).items()},
        **given,
    )


@pytest.mark.parametrize(
    ("ours", "elsewhere", "holds", "begins"),
    [
        ([1.1, 1.2, 1.3], {}, "holds", ""),
        ([1.1, 1.2, 1.3], {"cv 4": [1.4]}, "holds", "cv 4: 1.4"),
        ([1.1, 1.2, 1.3], {"cv 4": [0.9], "big": [1.5]}, "holds only if", "not cv 4; "),
        ([0.9, 1.2, 1.3], {}, "holds only if", "in the median, not for every seed"),
        (
            [0.9, 1.2, 1.3],
            {"cv 4": [0.2]},
            "holds only if",
            "in the median, not for every seed; not cv 4;",
        ),
        (
            [0.7, 0.8, 0.9],
            {"cv 4": [0.9], "big": [1.5]},
            "holds only if",
            "big; not as stated or cv 4; ",
        ),
        ([0.7, 0.8, 1.3], {"cv 4": [0.9]}, "does not hold", "cv 4: 0.9"),
        ([0.7], {}, "does not hold", "what was measured says otherwise"),
    ],
)
def test_a_claim_holds_for_all_for_some_or_for_none(ours, elsewhere, holds, begins):
    made = verdict(ours, elsewhere)

    assert (made.holds, made.why[: len(begins)]) == (holds, begins)


def test_numbers_are_shown_with_their_unit_and_the_reason_comes_first():
    made = verdict([0.5], {"big": [0.75]}, unit="x", why="small")

    assert (made.ours, made.why) == ("0.5x", "small; big: 0.75x")


def test_a_row_is_judged_with_numbers_in_its_texts_and_left_out_where_its_cases_did_not_run():
    """
    A quick run has fewer cases: a claim about the others has no verdict rather than "no value".
    """

    def service(client):
        return lambda results: (
            results.interval("service", client=client) if ran(results, client=client) else None
        )

    def row(client):
        return Claim(
            claim="b gets half",
            paper=words("1/2; a has ", service("a")),
            value=service(client),
            rule=above(1),
            unit=" tokens",
            elsewhere={"c": service("c")},
        )

    results = Results(
        [{"client": client, "seed": 0, "service": value} for client, value in (("a", 4), ("b", 2))]
    )

    made = each_judged([row("b"), row("c")])(results)

    assert [(v.paper, v.ours, v.holds, v.why) for v in made] == [
        ("1/2; a has 4", "2 tokens", "holds", "")
    ]


def test_what_has_no_value_is_not_comparable_and_decides_nothing_elsewhere():
    """
    A client that starves in every seed has no time to its first token.
    """
    nothing = verdict([])

    assert (nothing.ours, nothing.holds) == ("no value", "not comparable")
    assert verdict([1.1], {"cv 4": []}).holds == "holds"
    assert verdict([1.1], {"cv 4": []}).why == "cv 4: no value"
    assert verdict([0.9], {"cv 4": []}).holds == "does not hold"


def test_rules():
    assert [below(1)(0.5), below(1)(1.0)] == [True, False]
    assert [within(0.8, 1)(each) for each in (0.79, 0.8, 1.0, 1.01)] == [False, True, True, False]


def outcome(rates, metric="service_client"):
    """An outcome with a point per minute and client."""
    return Outcome(
        summary={},
        series=[
            SeriesPoint(60.0 * minute, client, metric, value)
            for client, values in rates.items()
            for minute, value in enumerate(values)
        ],
    )


def test_slow_minutes_are_those_below_two_fifths_of_the_best():
    """
    80 is the best, so 31 is slow and 33 is not; the first minute is half a one and does not count.
    """
    run = outcome({"a": [1, 40, 16, 16, 0], "b": [1, 40, 15, 17, 5]})

    assert slow_share(run) == 0.5
    assert slow_share(Outcome(summary={})) is None


def test_a_lead_is_of_the_first_half():
    run = outcome({"a": [30, 30, 0, 0, 0], "b": [10, 10, 10, 90, 90], "c": [10, 10, 10, 90, 90]})

    assert lead_of("a", "service_client")(run) == pytest.approx(60 / 30)


def test_the_peak_leaves_clients_and_gaps_out():
    run = outcome({"a": [900, 1], "b": [3, None], "c": [5, 4]}, metric="response_time")

    assert response_peak(without=("a",))(run) == 5


def test_what_was_not_varied_stands_as_stated():
    """
    Another Q^w is D2LPM's alone: it is compared with VTC as stated, and VTC with RR+LPM not again.
    """

    def row(system, variant, throughput):
        where = {"workload": "tot", "misbehaviour": "s1", "replicas": 4}
        of = {"seed": 0, "programs": 20, "throughput": throughput}
        return {**where, "system": system, "variant": variant, **of}

    table = Fig7Table(
        [
            row("d2lpm", STATED, 20),
            row("vtc", STATED, 10),
            row("rr+lpm", STATED, 5),
            row("d2lpm", "Q^w", 30),
        ]
    )

    def ratios(variant, over, under):
        return table.ratios(variant, "throughput", over, under)

    assert ratios(STATED, "d2lpm", "vtc") == {0: {Fig7Point(STATED, "tot", "s1", 4): 2}}
    assert ratios("Q^w", "d2lpm", "vtc") == {0: {Fig7Point("Q^w", "tot", "s1", 4): 3}}
    assert ratios("Q^w", "vtc", "rr+lpm") == {}


def test_a_point_of_few_programs_is_left_out_and_counted():
    """
    Of seed 1 a client began 19 programs: its eightfold throughput is its arrivals'.
    """

    def row(system, seed, programs, throughput):
        where = {"variant": STATED, "workload": "tot", "misbehaviour": "s1", "replicas": 4}
        return {
            **where,
            "system": system,
            "seed": seed,
            "programs": programs,
            "throughput": throughput,
        }

    table = Fig7Table(
        [row("d2lpm", 0, 20, 3), row("vtc", 0, 20, 2), row("d2lpm", 1, 19, 8), row("vtc", 1, 19, 1)]
    )

    found = table.ratios(STATED, "throughput", "d2lpm", "vtc")
    assert found == {0: {Fig7Point(STATED, "tot", "s1", 4): 1.5}}
    assert table.scope == "1 of 2 points and seeds"


@pytest.mark.parametrize("quick", [True, False])
def test_figure_7_is_judged_over_the_points_that_have_enough_programs(quick):
    """
    Seed 0 is complete, seed 1 is empty: each claim over points says so, whatever the other numbers are.
    """
    rows = rows_of(study_of("dlpm-fig7"), quick=quick, seeds=2).rows
    enough = [{**row, "programs": FEWEST - (row["seed"] == 1)} for row in rows]
    points = {tuple(row[name] for name in ("workload", "misbehaviour", "replicas")) for row in rows}

    verdicts = judge(Results(enough))

    scope = f"{len(points)} of {2 * len(points)} points and seeds"
    assert sum(scope in verdict.claim for verdict in verdicts) == 18
    assert not any("points and seeds" in verdict.claim for verdict in judge(Results(rows)))


def test_who_began_no_program_began_fewest():
    run = Outcome(summary={"program_waits": {"a": {"count": 7}, "b": {"count": 5}}})

    assert [fewest_programs("a", "b")(run), fewest_programs("a", "b", "c")(run)] == [5, 0]
