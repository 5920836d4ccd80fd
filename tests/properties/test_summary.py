"""A summary against sums over the whole list of events, however passes are reported: random clusters."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairhit_lab.events import (
    Admit,
    Cancel,
    Finish,
    FirstToken,
    Reject,
)
from fairhit_lab.metrics.events_file import read_events, writing_events
from fairhit_lab.metrics.gaps import no_bound
from fairhit_lab.metrics.summary import active
from fairhit_lab.metrics.summary.summary import Summary
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


@settings(max_examples=60, deadline=None)
@given(events=streams)
def test_a_history_that_is_cut_short_changes_nothing(events):
    """When everybody was active is remembered only as long as passes may lie in it."""
    expected = summarised(run_together(events))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(active, "LONG", 1)
        assert summarised(run_together(events)) == expected
