"""The papers' workloads: their counts, lengths and shapes, to the printed number where one is printed."""

from collections import Counter
from itertools import islice, pairwise
from random import Random

import pytest

from fairhit_lab.traces import arrivals
from fairhit_lab.traces.rows import in_order, row
from fairhit_lab.traces.trace import read_trace
from fairhit_lab.traces.write import line
from fairhit_lab.workloads import GENERATORS


def rows_of(name, seed=0, **settings):
    return list(GENERATORS[name].rows(Random(seed), **settings))


def counts(rows):
    return dict(sorted(Counter(row.client for row in rows).items()))


SHORT = {"fleet": {"requests": 300}}


@pytest.mark.parametrize("name", GENERATORS)
def test_every_workload_is_a_valid_trace_and_the_same_each_time(name: str, tmp_path):
    """The reader knows the rules: sorted, unique, parents first."""
    first, second = (b"".join(map(line, rows_of(name, **SHORT.get(name, {})))) for _ in range(2))
    path = tmp_path / "t.jsonl"
    path.write_bytes(first)

    assert first == second
    assert b"".join(map(line, read_trace(path))) == first


@pytest.mark.parametrize(
    "name",
    sorted(
        GENERATORS.keys()
        - {"increase", *["alternate", "bursts", "cached-prefix", "overtake", "split"]}
    ),
)
def test_another_seed_is_another_trace(name: str):
    assert rows_of(name, 0, **SHORT.get(name, {})) != rows_of(name, 1, **SHORT.get(name, {}))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # The measured runs of the artifact have these many requests.
        ("overload", {"c0": 540, "c1": 1080}),
        ("proportional", {"c0": 150, "c1": 300, "c2": 900}),
        ("on_off_less", {"c0": 150, "c1": 1200}),
        ("on_off_overload", {"c0": 600, "c1": 1800}),
        ("increase", {"c0": 300, "c1": 660}),
        ("overload-s4-35000-256", {"c0": 1800, "c1": 3600}),
        ("overload-s4-35000-512", {"c0": 900, "c1": 1800}),
        ("overload-s4", {"c0": 2400, "c1": 4800}),
        ("overload-weighted", {"c0": 144, "c1": 288, "c2": 432, "c3": 576}),
        ("overload-weighted-plain", {"c0": 288, "c1": 288, "c2": 432, "c3": 576}),
    ],
)
def test_requests_of_each_client_are_as_many_as_in_the_vtc_paper(name, expected):
    assert counts(rows_of(name)) == expected


def test_on_and_off_is_every_other_minute():
    paused = {
        int(row.arrival_us // 60e6) % 2 for row in rows_of("on_off_less") if row.client == "c0"
    }

    assert paused == {0}


def test_poisson_draws_clients_by_their_rates_and_lengths_by_client():
    rows = rows_of("poisson_short_long_2")
    shapes = {(row.client, len(row.prompt), row.output_len) for row in rows}

    assert len(rows) == 5700
    assert shapes == {("c0", 512, 32), ("c1", 32, 512)}
    assert counts(rows)["c0"] == pytest.approx(4800, rel=0.03)


def test_the_load_shifts_twice():
    """30 on and off + 120; then 60 + 60; then 30 + 90 a minute, in five minutes each."""
    rows = rows_of("dist_shift")
    phases = Counter((row.client, int(row.arrival_us // 300e6)) for row in rows)

    assert [phases["c0", n] for n in range(3)] == pytest.approx([90, 300, 150], abs=2)
    assert [phases["c1", n] for n in range(3)] == pytest.approx([600, 300, 450], abs=2)


def test_weights_are_in_the_trace():
    assert {(row.client, row.weight) for row in rows_of("overload-weighted")} == {
        (f"c{n}", (n + 1) * 1_000_000) for n in range(4)
    }


@pytest.mark.parametrize(("cv", "tolerance"), [(1.0, 0.05), (0.5, 0.05), (4.0, 0.2)])
def test_gamma_gaps_have_the_rate_and_the_burstiness_asked_for(cv, tolerance):
    times = list(islice(arrivals.gamma(Random(1), per_s=2, cv=cv), 20_000))
    gaps = [after - before for before, after in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5

    assert mean == pytest.approx(0.5, rel=tolerance)
    assert deviation / mean == pytest.approx(cv, rel=tolerance)


def test_even_arrivals_begin_within_one_and_two_gaps():
    times = list(arrivals.evenly(Random(2), per_s=4, count=5))

    assert 0.25 <= times[0] < 0.5
    assert [b - a for a, b in pairwise(times)] == pytest.approx([0.25] * 4)


@pytest.mark.parametrize(
    ("width", "requests", "mean"), [(2, 30, 804), (3, 120, 888), (4, 340, 926)]
)
def test_trees_have_the_requests_and_lengths_of_the_program(width, requests, mean):
    rows = rows_of("tot", clients=1, branches=(width,), programs_each=1)

    assert len(rows) == requests
    assert sorted({len(row.prompt) for row in rows}) == [130, 435, 731, 1018]
    assert sum(len(row.prompt) for row in rows) / len(rows) == pytest.approx(mean, abs=1)


def test_questions_ten_times_as_long_lengthen_every_level():
    rows = rows_of("tot-s2", programs_each=1)

    assert sorted({len(row.prompt) for row in rows if row.client == "c0"}) == [661, 966, 1262, 1549]
    assert sorted({len(row.prompt) for row in rows if row.client == "c1"}) == [130, 435, 731, 1018]


def test_a_node_continues_its_parent():
    rows = {row.id: row for row in rows_of("tot", clients=1, programs_each=1)}

    for one in rows.values():
        for parent in map(rows.get, one.after):
            before = parent.prompt + parent.output
            assert one.prompt[: len(before)] == before
    assert sum(not one.after for one in rows.values()) == 2


def test_siblings_differ_unless_they_collapse():
    def texts(collapse):
        rows = rows_of("tot", clients=1, programs_each=1, collapse=collapse)
        return len({row.output for row in rows}), len({row.prompt for row in rows})

    assert texts(collapse=False) == (30, 1 + 2 + 4 + 8)
    assert texts(collapse=True) == (4, 4)


def test_a_judge_merges_what_its_branches_said():
    *branches, merge = rows_of("judge", clients=1, branches=(16,), programs_each=1)

    assert {len(row.prompt) for row in branches} == {34 + 2650 + 91}
    assert merge.after == tuple(row.id for row in branches)
    assert (len(branches), merge.output_len) == (16, 2)
    assert len(merge.prompt) > 34 + 2650 + 16 * 256


@pytest.mark.parametrize(("name", "settings"), [("judge-s2", {}), ("tot", {"preface": (600, 0)})])
def test_a_preface_is_the_clients_own_and_shared_by_its_programs(name, settings):
    rows = rows_of(name, programs_each=2, **settings)
    prefaces = {run for row in rows for run in row.prompt.runs if "preface" in str(run[0])}

    assert prefaces == {(f"{name.removesuffix('-s2')}:c0:preface", 0, 600)}


def test_documents_are_long_and_answers_short():
    rows = rows_of("long-qa", duration=5000)
    documents = {
        run
        for row in rows
        for run in row.prompt.runs
        if str(run[0]).count(":") == 2 and ":q" not in str(run[0])[3:]
    }
    lengths = [length for _, _, length in documents]
    outputs = [row.output_len for row in rows]

    assert sum(lengths) / len(lengths) == pytest.approx(21_400, rel=0.05)
    assert min(lengths) >= 10_000 and max(lengths) <= 34_000
    assert sum(outputs) / len(outputs) == pytest.approx(16.5, abs=1)
    assert max(outputs) == 35


def test_a_turn_begins_with_all_that_was_said():
    rows = rows_of("chat", clients=1, programs_each=3)
    turns = [row for row in rows if row.program == rows[0].program]

    assert len(turns) == 4
    for before, after in pairwise(turns):
        said = before.prompt + before.output
        assert after.after == (before.id,)
        assert after.prompt[: len(said)] == said


def test_arena_lengths_are_those_of_the_trace():
    rows = rows_of("arena", turns=1.0, system=0, duration=5000)
    inputs, outputs = (
        sorted(len(row.prompt) for row in rows),
        sorted(row.output_len for row in rows),
    )

    assert inputs[len(inputs) // 2] == pytest.approx(40, rel=0.1)
    assert outputs[len(outputs) // 2] == pytest.approx(211, rel=0.1)
    assert sum(outputs) / len(outputs) == pytest.approx(256, rel=0.1)
    assert inputs[0] >= 2 and inputs[-1] <= 1021


def test_two_clients_send_five_times_as_much_until_half_time():
    rows = rows_of("arena-surge", duration=4000, think=0)
    halves = Counter((row.client, int(row.arrival_us // 2e9)) for row in rows)

    assert halves["c2", 0] / halves["c2", 1] == pytest.approx(5, rel=0.25)
    assert halves["c0", 0] / halves["c0", 1] == pytest.approx(1, rel=0.25)


def test_what_one_client_does_changes_nothing_for_the_others():
    calm, wild = (rows_of("tot", branches=(width, 2)) for width in (2, 4))

    assert [r for r in calm if r.client != "c0"] == [r for r in wild if r.client != "c0"]


def test_the_fleet_is_skewed_and_streams():
    first = next(iter(GENERATORS["fleet"].rows(Random(0), requests=10**9, clients=10)))
    rows = rows_of("fleet", requests=5000, clients=100)
    lengths = [len(row.prompt) for row in rows]
    sent = counts(rows)

    assert first.id == "r0"
    assert sum(lengths) / len(lengths) == pytest.approx(1000, rel=0.02)
    assert max(len(row.prompt.runs) for row in rows) <= 8
    assert sent["c0"] / sent["c9"] == pytest.approx(10, rel=0.3)


def test_bursts_carry_as_many_tokens_as_what_is_spread():
    rows = rows_of("bursts")
    tokens = Counter()
    for one in rows:
        tokens[one.client] += len(one.prompt)

    assert tokens["f"] == tokens["g"] == 30 * 16_384


def test_rows_of_programs_that_overlap_come_in_order():
    def program(name, *times):
        return times[0], [
            row(f"{name}{t}", client=name, at_s=t, prompt=[("A", 1)], output_len=1) for t in times
        ]

    rows = in_order([program("a", 0, 5, 9), program("b", 1, 5), program("c", 6)])

    assert [one.id for one in rows] == ["a0", "b1", "a5", "b5", "c6", "a9"]
