"""Snapshots: their sums, and their cost, which depends on busy clients and not on known ones."""

import random
import time

import pytest
from tests.unit.gateway.observability.watched import WORKER, Times, Watched

from fairhit.core.request import ClientId
from fairhit.core.service import Weights
from fairhit.dispatch import Ticket
from fairhit.dispatch.accounting.consumption import Consumed
from fairhit.gateway.observability.page.ranking import Ranking
from fairhit.gateway.observability.page.snapshot import MOST_CLIENTS


def test_the_samples_of_a_run_add_up_to_the_ledger():
    """Forty clients, ten of them without a label of their own; at most twelve are shown at a time."""
    rng, watched, under_way = random.Random(1), Watched(named=30, limit=20), list[Ticket]()
    seen = [0] * 4
    for second in range(60):
        for _ in range(rng.randrange(8)):
            under_way.append(watched.arrive(f"c{rng.randrange(40) if second < 50 else 1}"))
        for ticket in rng.sample([t for t in under_way if t.number], k=rng.randrange(3)):
            under_way.remove(ticket)
            if rng.random() < 0.2:
                watched.dispatcher.cancelled(ticket, ran_us=1)
                watched.recorder.record(ticket, Times(), status=499, now_s=12.0)
            else:
                watched.finish(ticket, output_len=rng.randrange(1, 50))
        if rng.random() < 0.7:
            sample = watched.snapshots.take(time_s=second, took_s=1.0)
            watched.recorder.tick()
            rows = [*sample["clients"].values(), *([sample["other"]] if sample["other"] else [])]
            seen = [had + sum(column) for had, *column in zip(seen, *rows, strict=False)]
            assert sum(row[4] for row in rows) == len(watched.dispatcher.queue)
            assert sum(row[5] for row in rows) == len(under_way)
    for ticket in sorted(under_way, key=lambda t: t.number == 0):
        watched.dispatcher.cancelled(ticket, ran_us=1)
        watched.recorder.record(ticket, Times(), status=499, now_s=12.0)
    sample = watched.snapshots.take(time_s=61, took_s=1.0)
    rows = [*sample["clients"].values(), sample["other"] or [0] * 6]
    seen = [had + sum(column) for had, *column in zip(seen, *rows, strict=False)]
    accounts = [account.service for _, account in watched.dispatcher.ledger.accounts()]

    assert len(sample["clients"]) <= MOST_CLIENTS
    assert seen[1:] == [
        sum(got.extend_len for got in accounts),
        sum(got.cached_len for got in accounts),
        sum(got.output_len for got in accounts),
    ]


def test_shares_of_charge_and_engine_time_are_those_that_engines_report():
    watched = Watched(limit=1)
    watched.arrive("a")
    for a, b in ((0.0, 0.0), (30.0, 70.0)):
        counters = {"a": Consumed(a, 2 * a), "b": Consumed(b, 0.4 * a)}
        watched.dispatcher.consumption.report(WORKER, counters, time.monotonic())

    assert watched.snapshots.take(time_s=0, took_s=1.0)["consumed"] == {"a": [0.3, 0.833]}


def test_a_client_that_only_waits_is_shown():
    watched = Watched(limit=1)
    watched.arrive("a")
    watched.arrive("b")
    sample = watched.snapshots.take(time_s=0, took_s=1.0)

    assert sample["clients"] == {"a": [50, 0, 0, 0, 0, 1], "b": [0, 0, 0, 0, 1, 1]}


@pytest.mark.parametrize("shared", [False, True])
def test_a_gateway_with_a_shared_ledger_has_no_bound_of_its_own(shared):
    """Other gateways serve the rest of the clients' requests: this part alone would seem unfair."""
    watched = Watched(limit=1, shared=shared)
    for client in "aabb":
        watched.arrive(client)
    watched.snapshots.take(time_s=0, took_s=1.0)

    (seen,) = watched.snapshots.gaps
    assert (seen.bound is None) == shared


def test_a_change_of_weights_restarts_the_gaps():
    """Service under other weights, or before deficits were reset, was fair at its time."""

    def serve_both(samples: int) -> float:
        for _ in range(samples):
            for _ in range(20):
                for ticket in list(watched.dispatcher.engines[WORKER].tickets):
                    watched.finish(ticket)
                    watched.arrive(ticket.request.client)
            watched.snapshots.take(time_s=0, took_s=1.0)
        return watched.snapshots.gaps[0].gap.tokens

    watched = Watched(limit=2)
    for client in "ababababab":
        watched.arrive(client)
    serve_both(30)
    watched.dispatcher.change(max_in_flight=1024, weights=Weights({"a": "2"}))

    assert serve_both(1) == 0.0  # the first sample with the new weights
    assert serve_both(5) <= watched.snapshots.gaps[0].bound
    assert watched.snapshots.violations == 0
    watched.dispatcher.set_scheduler("dlpm")
    assert serve_both(1) == 0.0


def test_a_snapshot_reads_busy_clients_only(monkeypatch):
    """Reading 20,000 idle clients would delay all requests by half a second, each second."""
    watched, read = Watched(), list[ClientId]()
    for number in range(100):
        watched.finish(watched.arrive(f"c{number}"))
    for second in range(3):
        watched.snapshots.take(time_s=second, took_s=1.0)
        watched.recorder.tick()
    account = watched.dispatcher.ledger.account
    monkeypatch.setattr(
        watched.dispatcher.ledger, "account", lambda name: read.append(name) or account(name)
    )
    watched.finish(watched.arrive("c50"))
    sample = watched.snapshots.take(time_s=3, took_s=1.0)

    assert "c50" in read and len(set(read)) <= MOST_CLIENTS + 1
    assert sample["clients"]["c50"][1] == 18


def test_the_ranking_equals_one_over_all_clients():
    """The ranking updates changed clients only; the reference decays and sorts all of them."""
    rng, ranking = random.Random(2), Ranking(4)
    scores, shown = dict[ClientId, float](), list[ClientId]()
    for step in range(3000):
        busy = rng.sample(range(20), k=rng.randrange(4)) if step % 1000 < 300 else []
        served = {f"c{client}": rng.randrange(1000) for client in busy}
        waiting = {f"c{client}": 1 for client in busy[:1]}
        ranking.update(served, waiting)
        scores = {name: score * 0.9836 for name, score in scores.items()}
        for name, tokens in served.items():
            scores[name] = scores.get(name, 0.0) + tokens + 50 * waiting.get(name, 0)
        scores = {name: score for name, score in scores.items() if score >= 1}
        best = sorted(scores, key=lambda n: (-scores[n] * (1.3 if n in shown else 1), n))
        shown = sorted(best[:4])

        assert ranking.shown == shown, step


def test_shares_of_entitlement_count_what_waits_as_demand() -> None:
    """The light client was held back; the estimate of its waiting request is its finished one."""
    watched = Watched(limit=1)
    for client in ("flood", "light", "flood", "flood"):
        watched.arrive(client)
    for ticket in list(watched.dispatcher.engines[WORKER].tickets):
        watched.finish(ticket)
    while watched.sent:
        watched.finish(watched.sent.pop(0))
    for client in ("flood", "flood", "light", "light", "light"):
        watched.arrive(client)
    sample = watched.snapshots.take(time_s=1.0, took_s=1.0)

    shares = watched.snapshots.entitled.shares
    assert sample["entitled"] == {name: round(share, 3) for name, share in shares.items()}
    assert shares["flood"] > 1 > shares["light"] > 0
    read = watched.read()
    assert read["fairhit_client_entitlement_ratio", "light"] == pytest.approx(shares["light"])
