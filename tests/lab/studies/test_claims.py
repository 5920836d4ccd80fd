"""A claim is judged by every seed and every setting; each of the five ways out can be reached."""

import csv

import pytest
from tests.lab.studies.synthetic import rows_of, study

from fairhit_lab.metrics.series import SeriesPoint
from fairhit_lab.metrics.vtc_table import Row
from fairhit_lab.report.study_files import write_judgement
from fairhit_lab.studies import study_of
from fairhit_lab.studies.dlpm.fig7_claims import judge
from fairhit_lab.studies.dlpm.fig7_points import FEWEST, Fig7Point, Fig7Table
from fairhit_lab.studies.dlpm.shared import STATED
from fairhit_lab.studies.shared.claims import (
    Claim,
    above,
    below,
    could_show,
    each_judged,
    judged,
    limited,
    ran,
    up_to,
    within,
    words,
)
from fairhit_lab.studies.shared.measures import (
    fewest_programs,
    late_ttft,
    lead_of,
    response_peak,
    slow_share,
)
from fairhit_lab.studies.shared.results import Results, interval_of
from fairhit_lab.studies.shared.study import Outcome, Verdict


def verdict(ours, elsewhere=None, **given):
    return judged(
        claim="more",
        paper="above 1",
        ours=interval_of(ours),
        rule=above(1),
        elsewhere={name: interval_of(values) for name, values in (elsewhere or {}).items()},
        **given,
    )


CONDITIONS, MEDIAN = "holds under conditions only", "holds in the median only"
SEEDS = "as stated in the median, not for every seed"


@pytest.mark.parametrize(
    ("ours", "elsewhere", "holds", "begins"),
    [
        ([1.1, 1.2, 1.3], {}, "holds", ""),
        ([1.1, 1.2, 1.3], {"cv 4": [1.4]}, "holds", "cv 4: 1.4"),
        ([1.1, 1.2, 1.3], {"cv 4": [0.9], "big": [1.5]}, CONDITIONS, "not cv 4; "),
        ([0.9, 1.2, 1.3], {}, MEDIAN, SEEDS),
        ([0.9, 1.2, 1.3], {"cv 4": [1.4]}, MEDIAN, SEEDS),
        ([0.9, 1.2, 1.3], {"cv 4": [0.2]}, CONDITIONS, f"not cv 4; {SEEDS};"),
        (
            [0.7, 0.8, 0.9],
            {"cv 4": [0.9], "big": [1.5]},
            CONDITIONS,
            "big; not as stated or cv 4; ",
        ),
        ([0.7, 0.8, 1.3], {"cv 4": [0.9]}, "does not hold", "cv 4: 0.9"),
        ([0.7], {}, "does not hold", "what was measured says otherwise"),
    ],
)
def test_seeds_and_settings_are_reported_apart(ours, elsewhere, holds, begins):
    made = verdict(ours, elsewhere)

    assert (made.holds, made.why[: len(begins)]) == (holds, begins)


@pytest.mark.parametrize(
    ("reach", "ours", "holds", "begins"),
    [
        (
            could_show(0, 1),
            [0.4],
            "not comparable",
            "asks for 1, and the run could show only 0 to 1",
        ),
        (could_show(0, 5), [0.4], "does not hold", ""),
        (could_show(0, 5), [1.4], "holds", ""),
        (could_show(2, 5), [2.4], "not comparable", "cannot fail: the run could show only 2 to 5"),
        # An expected limit that the run passed was none.
        (could_show(0, 1), [1.2], "holds", ""),
        (could_show(2, 5), [0.5], "does not hold", ""),
    ],
)
def test_a_claim_that_the_run_could_not_decide_is_not_comparable(reach, ours, holds, begins):
    """
    A run of 100 s shows no wait of 600 s, whatever the scheduler does; a share is never above 1.
    """
    made = verdict(ours, reach=reach)

    assert (made.holds, made.why[: len(begins)]) == (holds, begins)
    assert (made.least, made.greatest) == (min(reach.low, *ours), max(reach.high, *ours))


@pytest.mark.parametrize(
    ("on", "holds", "begins"),
    [
        ({"a": (could_show(0, 2), above(1))}, "holds", ""),
        (
            {"a": (could_show(0, 2), above(1)), "b": (could_show(0, 2), above(3))},
            "not comparable",
            "on b it asks for 3, and the run could show only 0 to 2",
        ),
        ({"a": (could_show(2, 3), above(1)), "b": (could_show(0, 3), above(1))}, "holds", ""),
        (
            {"a": (could_show(2, 3), above(1))},
            "not comparable",
            "cannot fail: the run could show only",
        ),
    ],
)
def test_a_claim_over_workloads_needs_each_to_be_able_to_keep_it_and_one_to_break_it(
    on, holds, begins
):
    made = limited(Verdict(claim="c", paper="p", ours="o", holds="holds"), on)

    assert (made.holds, made.why[: len(begins)]) == (holds, begins)
    lows, highs = zip(*((reach.low, reach.high) for reach, _ in on.values()), strict=True)
    assert (made.least, made.greatest) == (min(lows), max(highs))


def test_limits_that_are_not_known_decide_nothing():
    made = verdict([0.5])

    assert (made.holds, made.least, made.greatest) == ("does not hold", None, None)


def test_an_up_to_has_a_margin_on_both_sides():
    rule = up_to(6)

    assert [rule(each) for each in (4.49, 4.5, 6, 8, 8.01)] == [False, True, True, True, False]


def test_claims_of_our_own_are_marked_and_written_below_the_papers(tmp_path):
    def row(name, whose):
        return Claim(
            claim=name,
            paper="1",
            value=lambda results: results.interval("x"),
            rule=above(1),
            whose=whose,
        )

    rows = [row("a", "ours"), row("b", "paper")]
    made = study([], judge=each_judged(rows)).verdicts(Results([{"seed": 0, "x": 2}]))
    write_judgement(tmp_path, "any", made, {})

    with (tmp_path / "verdicts.csv").open(newline="") as file:
        written = [(line["claim"], line["whose"]) for line in csv.DictReader(file)]
    assert written == [("b", "paper"), ("a", "ours")]


def test_every_claim_of_a_study_beyond_the_papers_is_ours():
    one = Verdict(claim="a", paper="1", ours="2", holds="holds")
    beyond = study([], judge=lambda _: [one], whose="ours")

    assert [each.whose for each in beyond.verdicts(Results([]))] == ["ours"]


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
        Results(
            [
                row("d2lpm", STATED, 20),
                row("vtc", STATED, 10),
                row("rr+lpm", STATED, 5),
                row("d2lpm", "Q^w", 30),
            ]
        )
    )

    def ratios(variant, over, under):
        return table.ratios(variant, "throughput", over, under)

    assert ratios(STATED, "d2lpm", "vtc") == {0: {Fig7Point(STATED, "tot", "s1", 4): 2}}
    assert ratios("Q^w", "d2lpm", "vtc") == {0: {Fig7Point("Q^w", "tot", "s1", 4): 3}}
    assert ratios("Q^w", "vtc", "rr+lpm") == {}


def fig7_row(system, seed, *, replicas=4, variant=STATED, programs=FEWEST, **measures):
    """A row of Figure 7, with 1 for what is not given."""
    where = {"variant": variant, "workload": "tot", "misbehaviour": "s1", "replicas": replicas}
    columns = (
        "throughput",
        "hit_rate",
        "jain_client",
        "jain_system",
        "p50_program_s",
        "p99_program_s",
    )
    return {
        **where,
        "system": system,
        "seed": seed,
        "programs": programs,
        **dict.fromkeys(columns, 1.0),
        **measures,
    }


SYSTEMS = ("d2lpm", "vtc", "rr+lpm", "preble")


def test_a_point_of_few_programs_is_left_out_of_every_seed_and_counted():
    """
    Of seed 1 a client began 19 programs at D = 4: its eightfold throughput is its arrivals'. A maximum
    over more points in one seed than in another would compare different things.
    """
    table = Fig7Table(
        Results(
            [
                fig7_row(system, seed, replicas=replicas, throughput=speed, programs=programs)
                for replicas, seed, speed, programs in (
                    (4, 0, 3, 20),
                    (4, 1, 8, 19),
                    (8, 0, 2, 20),
                    (8, 1, 2, 20),
                )
                for system, speed in (("d2lpm", speed), ("vtc", 1))
            ]
        )
    )

    found = table.ratios(STATED, "throughput", "d2lpm", "vtc")
    assert found == {seed: {Fig7Point(STATED, "tot", "s1", 8): 2} for seed in (0, 1)}
    assert table.scope == "1 of 2 points"


def up_to_of(rows, name, configs=None):
    """The verdict on the greatest latency under a system."""
    verdicts = judge(Results(rows, configs=configs or {}))
    (found,) = (each for each in verdicts if f"under {name} is up to" in each.claim)
    return found


def test_a_maximum_is_compared_over_as_many_points_only():
    """
    A setting that was run at one D of two has fewer chances to show a large ratio: 7 there breaks
    nothing, and the 2 of a setting with both does.
    """
    rows = [
        fig7_row(system, 0, replicas=replicas, p99_program_s=7.0 if system == "preble" else 1.0)
        for system in SYSTEMS
        for replicas in (4, 8)
    ]
    one = [fig7_row(system, 0, variant="cv 4", p99_program_s=1.0) for system in SYSTEMS]
    both = [
        fig7_row(system, 0, variant="large", replicas=replicas)
        for system in SYSTEMS
        for replicas in (4, 8)
    ]

    assert up_to_of([*rows, *one], "Preble").holds == "holds"
    varied = up_to_of([*rows, *one, *both], "Preble")
    assert (varied.holds, varied.why[:10]) == ("holds under conditions only", "not large;")


@pytest.mark.parametrize(
    ("stop_s", "holds", "greatest"),
    [(1010, "does not hold", 15.1), (500, "does not hold", 7.45), (110, "not comparable", 1.639)],
)
def test_a_latency_is_no_longer_than_the_run(stop_s, holds, greatest):
    """
    The earliest hundredth of the arrivals can wait for the whole run, half of them for half of it. A paper's
    7.18x of D2LPM's 50 s can be seen in a long run alone.
    """
    case = {"stop_s": stop_s, "source": {"settings": {"duration": 1000}}}
    rows = [
        {**fig7_row(system, 0, p50_program_s=50.0, p99_program_s=50.0), "config": "0a"}
        for system in SYSTEMS
    ]

    made = up_to_of(rows, "Preble", {"0a": case})

    assert (made.holds, made.least, made.greatest) == (holds, 0, pytest.approx(greatest))


@pytest.mark.parametrize("quick", [True, False])
def test_figure_7_is_judged_over_the_points_that_have_enough_programs(quick):
    """
    One point is empty: each claim over points says so, whatever the other numbers are.
    """
    rows = rows_of(study_of("dlpm-fig7"), quick=quick, seeds=2).rows
    where = ("workload", "misbehaviour", "replicas")
    points = list(dict.fromkeys(tuple(row[name] for name in where) for row in rows))
    enough = [
        {**row, "programs": FEWEST - (tuple(row[name] for name in where) == points[1])}
        for row in rows
    ]

    verdicts = judge(Results(enough))

    scope = f"{len(points) - 1} of {len(points)} points"
    assert sum(scope in verdict.claim for verdict in verdicts) == 18
    assert not any(" points" in verdict.claim for verdict in judge(Results(rows)))


def test_who_began_no_program_began_fewest():
    run = Outcome(summary={"program_waits": {"a": {"count": 7}, "b": {"count": 5}}})

    assert [fewest_programs("a", "b")(run), fewest_programs("a", "b", "c")(run)] == [5, 0]


def test_late_waits_are_those_of_the_last_requests_to_arrive():
    def request(client, arrival_s, wait_s, *, aborted=False):
        return Row(client, arrival_s, arrival_s + wait_s, arrival_s + 99, 1, 1, aborted)

    early = [request("a", at, 50.0) for at in range(8)]
    run = Outcome(
        summary={},
        requests=[request("a", 9, 2.0), request("a", 8, 1.0), *early, request("b", 10, 70.0),
                  request("a", 11, 90.0, aborted=True)],
    )  # fmt: skip

    assert [late_ttft("a", share)(run) for share in (0.1, 0.2, 1.0)] == [2.0, 2.0, 50.0]
    assert late_ttft("c", 0.1)(run) is None
