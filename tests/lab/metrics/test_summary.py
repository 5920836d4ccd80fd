"""The summary of a run: small runs whose numbers are known, its schema, its memory."""

import json
import tracemalloc
from pathlib import Path
from random import Random

import jsonschema
import pytest
from tests.reference.event_streams import Stream

from fairhit_lab.events import (
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
    WorkerUpOrDown,
)
from fairhit_lab.metrics.gaps import dlpm_bound, no_bound, vtc_bound
from fairhit_lab.metrics.summary.report import json_of, schema_of_summary
from fairhit_lab.metrics.summary.summary import Summary


def summarised(events):
    summary = Summary()
    for event in events:
        summary(event)
    return summary.as_dict()


def test_the_summary_keeps_its_schema_and_is_json():
    """The schema is shipped beside the code, so that readers of summaries may rely on it."""
    checks = jsonschema.Draft202012Validator(schema_of_summary())
    for seed in range(30):
        got = summarised(Stream(Random(seed), clients="abc", requests=seed).events)
        checks.validate(json.loads(json.dumps(got)))
    with pytest.raises(jsonschema.ValidationError):
        checks.validate({**got, "more": 1})


def test_a_run_without_events_has_a_summary():
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


def test_shares_of_entitlement_by_hand():
    """Of 28 served, a asked for 14 and got them; b asked for 20 and got 14, as much as is left.

    c asks for 9 and gets nothing: a third of 28 is its due, and a and b had more than they should.
    """
    summary = Summary()
    summary.start("r", "a", 0, demand=14)
    summary.start("s", "b", 0, demand=20)
    for event in (*ran("r", "a"), *ran("s", "b", at_us=3_000_000, step=3)):
        summary(event)
    before = summary.as_dict()
    summary.start("t", "c", 0, demand=9)
    summary.left("t", "c", 9_000_000)
    after = summary.as_dict()

    assert before["entitlement"] == {"worst_share": 1, "jain": 1}
    assert [after["clients"][client]["entitlement_share"] for client in "abc"] == [
        pytest.approx(14 / 9.5),
        pytest.approx(14 / 9.5),
        0,
    ]
    assert after["entitlement"]["worst_share"] == 0
    assert after["entitlement"]["jain"] == pytest.approx(2 / 3)


def test_without_demands_there_are_no_entitlements():
    got = summarised(ran())

    assert got["entitlement"] == {"worst_share": None, "jain": None}
    assert got["clients"]["a"]["entitlement_share"] is None


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


def test_with_one_queue_gaps_are_over_all_workers():
    """a and b wait for any worker, from dispatch to enqueue; a is served at 0 and at 1 meanwhile."""
    summary = Summary(one_queue=2)
    for n, client in enumerate("aaabb"):
        summary(Dispatch(0, None, f"r{n}", client))
    for n, worker in enumerate((0, 1)):
        summary(Enqueue(0, worker, f"r{n}", "a"))
        summary(Admit(0, worker, f"r{n}", "a", 0, 5, 8))
    for worker in (0, 1):
        summary(Decode(10, worker, 0, {"a": 1}, 1, 0, 10 * PS_PER_US, 0))
        summary(Finish(10, worker, f"r{worker}", "a", 0, 1))
    summary(Cancel(11, None, "r2", "a"))  # a waits no more: what follows does not count
    summary(Enqueue(11, 0, "r3", "b"))
    summary(Admit(11, 0, "r3", "b", 1, 100, 100))

    worst = summary.as_dict()["gaps"]["worst"]

    assert worst == {"clients": ["a", "b"], "gap": 2 * (5 + 2), "bound": None, "worker": None}


def after_its_worker_failed():
    """a's r0 ran at the worker that failed, a's r1 and b's two wait for any; with `one_queue`."""
    summary = Summary(one_queue=2)
    for request, client in (("r0", "a"), ("r1", "a"), ("r2", "b"), ("r3", "b")):
        summary(Dispatch(0, None, request, client))
    summary(Enqueue(0, 0, "r0", "a"))
    summary(Admit(0, 0, "r0", "a", 0, 5, 8))
    summary(WorkerUpOrDown(5, 0, False))
    summary(Preempt(5, 0, "r0", "a", 0))
    return summary


def gap_once_b_is_served(summary):
    summary(Enqueue(9, 1, "r2", "b"))
    summary(Admit(9, 1, "r2", "b", 0, 9, 9))
    return summary.as_dict()["gaps"]["worst"]["gap"]


def test_who_lost_its_worker_is_not_in_the_one_queue_until_it_is_dispatched_again():
    """a got 5 and b then 9, which counts as long as a waits: r1 does, whatever becomes of r0."""
    summary = after_its_worker_failed()
    summary(Cancel(6, None, "r0", "a"))

    assert gap_once_b_is_served(summary) == 9


def test_who_is_dispatched_again_waits_in_the_one_queue():
    summary = after_its_worker_failed()
    summary(Dispatch(6, None, "r0", "a"))
    summary(Cancel(7, None, "r1", "a"))

    assert gap_once_b_is_served(summary) == 9


def test_what_waits_in_the_one_queue_is_work_for_every_worker_that_is_up():
    """
    Workers 0 and 1 are up. Request x waits until 0 admits it at 4. Request y waits from 5 on: for 1, which
    fails at 7, and for 2, which joins at 10 and admits y at 11. Worker 0 runs x until 12, with none waiting.
    """
    summary = Summary(one_queue=2)
    summary(Dispatch(0, None, "x", "a"))
    summary(Enqueue(4, 0, "x", "a"))
    summary(Admit(4, 0, "x", "a", 0, 5, 5))
    summary(Dispatch(5, None, "y", "a"))
    summary(WorkerUpOrDown(7, 1, False))
    summary(WorkerUpOrDown(10, 2, True))
    summary(Enqueue(11, 2, "y", "a"))
    summary(Admit(11, 2, "y", "a", 0, 5, 5))
    for worker, request, t_us in ((0, "x", 12), (2, "y", 13)):
        summary(Finish(t_us, worker, request, "a", 0, 1))
    summary(Dispatch(14, None, "z", "a"))
    summary(Cancel(15, None, "z", "a"))

    assert summary.as_dict()["idle_with_work_s"]["workers"] == {
        "0": (4 + 1) / 1e6,
        "1": (4 + 2) / 1e6,
        "2": (1 + 1) / 1e6,
    }


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


def test_a_report_is_written_as_json_a_client_at_a_time():
    """
    100,000 clients as one object, then as one text, took 1 GB where the simulation had taken 0.15.
    """
    summary = Summary()
    clients = 2000
    for n in range(clients):
        for event in ran(f"r{n}", f"client-{n}", at_us=n * 10 * 10**6, step=3 * n):
            summary(event)
    whole = summary.as_dict()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    written = sum(len(part) for part in json_of(summary.report()))
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()

    assert "".join(json_of(summary.report())) == json.dumps(whole, indent=2) + "\n"
    assert "".join(json_of(summarised([]))) == json.dumps(summarised([]), indent=2) + "\n"
    assert peak < written / 2  # half a text; the rows of all clients are several


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
    summary(WorkerUpOrDown(4 * second, 0, False))
    for request, client in (("r2", "a"), ("r3", "b")):
        summary(Preempt(4 * second, 0, request, client, 1))
        summary(Dispatch(4 * second, 1, request, client))
        summary(Enqueue(4 * second, 1, request, client))

    got = summary.as_dict(end_us=6 * second)

    assert got["idle_with_work_s"] == {"total": 5, "workers": {"0": 3, "1": 2}}
    assert got["gaps"]["worst"]["gap"] == 5 + 2
    assert got["requests"]["preemptions"] == 0  # no request was running
