"""One run in one object: against sums over the whole list of events, however its passes are told."""

import json
import tracemalloc
from pathlib import Path
from random import Random

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.core.events import (
    PS_PER_US,
    Admit,
    Cancel,
    Decode,
    Dispatch,
    Enqueue,
    Finish,
    FirstToken,
    Preempt,
    Reject,
    Worker,
)
from fairlead.metrics import active
from fairlead.metrics.events_file import read_events, writing_events
from fairlead.metrics.gaps import dlpm_bound, no_bound, vtc_bound
from fairlead.metrics.report import schema_of_summary
from fairlead.metrics.summary import Summary
from tests.reference import summary as plain
from tests.reference.event_streams import Stream, run_together

CLIENTS = "abc"
WEIGHTS = {"a": 1, "b": 2, "c": 0.5}

streams = st.builds(
    lambda seed, clients, workers, requests: (
        Stream(Random(seed), clients=CLIENTS[:clients], workers=workers, requests=requests).events
    ),
    seed=st.integers(0, 2**32),
    clients=st.integers(1, 3),
    workers=st.integers(1, 3),
    requests=st.integers(1, 30),
)


def summarised(events, *, view="system"):
    summary = Summary(
        bound=no_bound("a test", view=view), weight_of=lambda client: int(WEIGHTS[client] * 10**6)
    )
    for event in events:
        summary(event)
    return summary.as_dict()


@settings(max_examples=150, deadline=None)
@given(events=streams)
def test_a_run_of_passes_counts_as_its_passes_do(events):
    """Skipping like passes may not change a single number."""
    assert summarised(run_together(events)) == summarised(events)


@settings(max_examples=50, deadline=None)
@given(events=streams)
def test_what_is_read_from_a_file_counts_the_same(events, tmp_path_factory):
    path = tmp_path_factory.mktemp("events") / "e.jsonl"
    with writing_events(path) as write:
        for event in run_together(events):
            write(event)

    # A file tells runs of several workers one after the other, where they ended.
    assert summarised(read_events(path)) == summarised(events)


@settings(max_examples=100, deadline=None)
@given(events=streams)
def test_each_client_gets_what_the_list_of_events_says(events):
    got = summarised(events)

    for client, shown in got["clients"].items():
        extend, cached, output = plain.tokens(events, client)
        again = [e for e in plain.of(events, Admit) if e.client == client and e.again]
        rejected = [e for e in plain.of(events, Reject) if e.client == client]
        assert shown["requests"] == len(plain.requests(events, client))
        assert shown["finished"] == sum(e.client == client for e in plain.of(events, Finish))
        assert shown["cancelled"] == sum(e.client == client for e in plain.of(events, Cancel))
        assert shown["rejected"] == ({"rpm": len(rejected)} if rejected else {})
        assert shown["preemptions"] == plain.preemptions(events, client)
        assert shown["tokens"] == {
            "extend": extend, "cached": cached, "input": extend + cached, "output": output,
        }  # fmt: skip
        system, whole = extend + 2 * output, extend + cached + 2 * output
        assert shown["service"] == {"system": system, "client": whole}
        assert shown["service_by_weight"]["system"] == system / WEIGHTS[client]
        assert shown["recomputed_tokens"] == sum(e.extend_len for e in again)
    assert sum(shown["unfinished"] for shown in got["clients"].values()) == 0
    assert got["refills"] == plain.refills(events)
    assert got["locality"]["evicted_tokens"] == plain.evicted(events)


@settings(max_examples=100, deadline=None)
@given(events=streams)
def test_latencies_are_those_of_each_request(events):
    got = summarised(events)

    for client, shown in [(None, got), *got["clients"].items()]:
        for kind, name in ((FirstToken, "ttft"), (Finish, "completion")):
            samples = plain.latencies(events, kind, client)
            assert shown[name]["count"] == len(samples)
            for percent in (50, 95, 99):
                assert shown[name][f"p{percent}_s"] == plain.rank(samples, percent)


@settings(max_examples=100, deadline=None)
@given(events=streams)
def test_jain_counts_the_time_in_which_all_are_active(events):
    inside = plain.all_active(events)
    seen = sorted({e.client for e in events if type(e).__name__ == "Dispatch"})
    parts = [plain.tokens(events, client, inside) for client in seen]
    system = [(e + 2 * o) / WEIGHTS[c] for c, (e, _, o) in zip(seen, parts, strict=True)]
    client = [(e + h + 2 * o) / WEIGHTS[c] for c, (e, h, o) in zip(seen, parts, strict=True)]

    got = summarised(run_together(events))["jain"]

    assert got["clients"] == len(seen)
    assert got["all_active_s"] == plain.all_active_us(events, plain.end_us(events)) / 10**6
    assert got["system"] == pytest.approx(plain.jain(system))
    assert got["client"] == pytest.approx(plain.jain(client))


@settings(max_examples=100, deadline=None)
@given(events=streams, view=st.sampled_from(["system", "client"]))
def test_gaps_are_the_largest_of_every_joint_backlog(events, view):
    expected = {}
    for worker in range(3):
        for pair, gap in plain.gaps(events, worker, WEIGHTS, view).items():
            if gap > expected.get(pair, (-1, 0))[0]:
                expected[pair] = (gap, worker)

    got = summarised(run_together(events), view=view)["gaps"]

    assert {tuple(p["clients"]): (p["gap"], p["worker"]) for p in got["pairs"]} == expected
    assert got["worst"] == (got["pairs"][0] if expected else None)


@settings(max_examples=100, deadline=None)
@given(events=streams)
def test_idle_with_work_is_time_with_waiting_and_nothing_running(events):
    got = summarised(run_together(events))["idle_with_work_s"]

    end_us = plain.end_us(events)
    for worker, idle_s in got["workers"].items():
        assert idle_s == plain.idle_us(events, int(worker), end_us) / 10**6


def test_the_summary_keeps_its_schema_and_is_json():
    """The schema is shipped beside the code: whoever reads summaries may rely on it."""
    checks = jsonschema.Draft202012Validator(schema_of_summary())
    for seed in range(30):
        got = summarised(Stream(Random(seed), clients=CLIENTS, requests=seed).events)
        checks.validate(json.loads(json.dumps(got)))
    with pytest.raises(jsonschema.ValidationError):
        checks.validate({**got, "more": 1})


def test_a_run_that_told_nothing_has_a_summary():
    assert summarised([])["requests"]["total"] == 0


def ran(request="r", client="a", *, at_us=0, emits=3, extend_len=5, input_len=8, step=0):
    """A request that comes, runs alone in passes of one second, and goes."""
    second = 10**6
    yield Dispatch(at_us, 0, request, client)
    yield Enqueue(at_us, 0, request, client)
    yield Admit(at_us, 0, request, client, step, extend_len, input_len)
    pass_ps = second * PS_PER_US
    first = at_us + second
    yield Decode(first, 0, step, {client: 1}, 1, at_us * PS_PER_US, pass_ps, 0)
    yield FirstToken(first, 0, request, client)
    end = at_us + emits * second
    if emits > 1:
        yield Decode(end, 0, step + 1, {client: 1}, emits - 1, first * PS_PER_US, pass_ps, 0)
    yield Finish(end, 0, request, client, step + emits - 1, emits)


def test_one_request_by_hand():
    summary = Summary()
    for event in ran(at_us=2_000_000):
        summary(event)

    got = summary.as_dict()

    assert (got["begin_s"], got["end_s"], got["makespan_s"]) == (2, 5, 3)
    assert got["throughput"] == {
        "tokens_per_s": 11 / 3, "service_per_s": 14 / 3, "requests_per_s": 1 / 3,
    }  # fmt: skip
    assert (got["ttft"]["p50_s"], got["completion"]["p99_s"]) == (1, 3)
    assert got["time_per_output_token"]["mean_s"] == 1
    assert got["locality"]["hit_rate"] == 3 / 8
    assert got["jain"] == {"clients": 1, "all_active_s": 3, "system": 1, "client": 1}


def test_latency_counts_from_the_start_and_programs_to_their_last_finish():
    """r1 is held back two seconds by a rate limit before it is dispatched; r2 follows r1."""
    summary = Summary()
    summary.start("r1", "a", 0, program="p")
    for event in ran("r1", at_us=2_000_000):
        summary(event)
    summary.start("r2", "a", 5_000_000, program="p")
    for event in ran("r2", at_us=5_000_000, step=3):
        summary(event)
    summary.start("r3", "b", 8_000_000, program="q")
    summary(Reject(8_000_000, None, "r3", "b", "too-large"))

    got = summary.as_dict()

    assert got["clients"]["a"]["ttft"]["max_s"] == 3
    assert got["begin_s"] == 0
    assert (got["programs"]["count"], got["programs"]["complete"]) == (2, 1)
    assert got["programs"]["completion"]["p50_s"] == 8
    assert got["programs"]["clients"]["b"]["count"] == 0


def test_a_run_that_is_cut_off_says_so_and_counts_what_it_has():
    summary = Summary()
    for event in list(ran())[:-2]:
        summary(event)

    got = summary.as_dict(interrupted=True, end_us=9_000_000)

    assert got["interrupted"] and got["end_s"] == 9
    assert got["clients"]["a"]["unfinished"] == 1
    assert got["clients"]["a"]["tokens"]["output"] == 1
    assert got["throughput"]["tokens_per_s"] is None


def test_only_the_first_64_clients_are_compared_and_it_says_so():
    summary = Summary()
    for n in range(70):
        for kind in (Dispatch, Enqueue):
            summary(kind(n, 0, f"r{n}", f"c{n}"))

    gaps = summary.as_dict()["gaps"]

    assert (gaps["tracked"], gaps["untracked"], len(gaps["pairs"])) == (64, 6, 64 * 63 // 2)
    assert not {client for pair in gaps["pairs"] for client in pair["clients"]} & {"c64", "c69"}


@pytest.mark.parametrize(
    ("bound", "weights", "expected"),
    [
        (dlpm_bound(quantum=100, capacity=1000), (1, 1), 2 * (100 + 30 + 2000)),
        (dlpm_bound(quantum=100, capacity=1000), (2, 0.5), 200 + 2030 * (1 / 2 + 2)),
        (vtc_bound(capacity=1000), (1, 1), 2 * 2000),
        (vtc_bound(capacity=10), (1, 1), 2 * 30),
        (no_bound("fcfs promises nothing"), (1, 1), None),
    ],
)
def test_bounds_are_the_theorems(bound, weights, expected):
    """L is the longest input that was admitted: 30."""
    share = dict(zip("ab", weights, strict=True))
    summary = Summary(bound=bound, weight_of=lambda client: int(share[client] * 10**6))
    for request, client in (("r1", "a"), ("r2", "a"), ("r3", "b")):
        summary(Dispatch(0, 0, request, client))
        summary(Enqueue(0, 0, request, client))
    summary(Admit(0, 0, "r1", "a", 0, 12, 30))

    gaps = summary.as_dict()["gaps"]

    assert gaps["worst"]["bound"] == expected
    assert gaps["worst"]["gap"] == (30 if gaps["view"] == "client" else 12) / weights[0]
    assert gaps["no_bound_because"] == (None if expected else "fcfs promises nothing")


def test_the_page_names_every_field():
    page = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "summary.md").read_text()
    schema = schema_of_summary()

    def names(part):
        for name, below in part.get("properties", {}).items():
            yield name
            yield from names(below)

    fields = {*names(schema), *(name for part in schema["$defs"].values() for name in names(part))}
    assert {name for name in fields if f"`{name}`" not in page and f'"{name}"' not in page} == set()
    assert len(fields) > 50


@settings(max_examples=60, deadline=None)
@given(events=streams)
def test_a_history_that_is_cut_short_changes_nothing(events):
    """When everybody was active is remembered only as long as passes may lie in it."""
    expected = summarised(run_together(events))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(active, "LONG", 1)
        assert summarised(run_together(events)) == expected


def test_an_idle_client_costs_less_than_a_kibibyte():
    """A day of 100,000 clients must fit in memory: ten requests each, all of them over."""
    summary = Summary()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    clients = 2000
    for n in range(clients):
        for k in range(10):
            at_us = (10 * n + k) * 10 * 10**6 + 12345 * k
            for event in ran(f"r{n}.{k}", f"client-{n}", at_us=at_us, step=3 * (10 * n + k)):
                summary(event)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    assert grown / clients <= 1024


def test_what_a_failed_worker_saw_still_counts():
    """b waits beside a, which is served 5 tokens; nothing runs from 1 to 4 s, when the worker fails."""
    second = 10**6
    summary = Summary()
    for request, client in (("r1", "a"), ("r2", "a"), ("r3", "b")):
        summary(Dispatch(0, 0, request, client))
        summary(Enqueue(0, 0, request, client))
    summary(Admit(0, 0, "r1", "a", 0, 5, 8))
    summary(Decode(second, 0, 0, {"a": 1}, 1, 0, second * PS_PER_US, 0))
    summary(Finish(second, 0, "r1", "a", 0, 1))
    summary(Worker(4 * second, 0, False))
    for request, client in (("r2", "a"), ("r3", "b")):
        summary(Preempt(4 * second, 0, request, client, 1))
        summary(Dispatch(4 * second, 1, request, client))
        summary(Enqueue(4 * second, 1, request, client))

    got = summary.as_dict(end_us=6 * second)

    assert got["idle_with_work_s"] == {"total": 5, "workers": {"0": 3, "1": 2}}
    assert got["gaps"]["worst"]["gap"] == 5 + 2
    assert got["requests"]["preemptions"] == 0  # nobody was running
