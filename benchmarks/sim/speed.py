"""Simulated requests a second on one core, and how the cost of one grows with clients and the queue.

Caveat first: CPU time of one process, rows made beforehand, the garbage collector off, as `fairhit
simulate` runs them; a neighbour on the same core's other thread makes all of it slower. dlpm and the
summary are on; prompts are 1,000 tokens, of which the cache serves about three quarters. What is
measured is the fairhit that Python finds: the sources, or a compiled wheel (`make compiled`).
"""

import gc
import statistics
import sys
import time
from collections.abc import Iterable
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from benchmarks.record import write_rows
from benchmarks.sim.traffic import burst, steady
from fairhit_lab.metrics.summary.summary import Summary
from fairhit_lab.sim.cluster import Cluster
from fairhit_lab.sim.config import SimConfig
from fairhit_lab.traces.trace import TraceRow

RUNS = 5
REQUESTS = 10_000
# About 0.7 of what one simulated replica (A10G, Llama-3.2-3B) can do with this traffic; and what it
# can do while nothing is cached yet.
RATE, COLD_RATE = 8.0, 2.0
GROWTH = (10, 100, 1_000, 10_000, 100_000)


class Case(NamedTuple):
    """A row of the first table."""

    what: str
    replicas: int
    clients: int
    requests: int


CASES = (
    Case("1 replica", 1, 20, REQUESTS),
    Case("8 replicas", 8, 100, REQUESTS),
    Case("256 replicas", 256, 1_000, 2 * REQUESTS),
)


@contextmanager
def no_collections():
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def simulate(rows: Iterable[TraceRow], **settings: Any) -> tuple[float, Cluster]:
    """Simulate the rows; return the seconds of CPU and the cluster."""
    summary = Summary()
    cluster = Cluster(SimConfig(**settings), rows, [summary], on_start=summary.start)
    with no_collections():
        begun = time.process_time()
        cluster.run()
        summary.as_dict()
        return time.process_time() - begun, cluster


def requests_per_s(case: Case, seed: int) -> float:
    rate = RATE * case.replicas
    rows = list(steady(case.requests, rate=rate, clients=case.clients, seed=seed))
    spent, _ = simulate(rows, replicas=case.replicas)
    return case.requests / spent


def us_by_clients(clients: int, seed: int) -> float:
    """Return microseconds per request of ten clients on one replica that has served `clients` before.

    Ten at every point of the curve, so that rate and cache hits are the same.
    """
    known = list(steady(clients, rate=COLD_RATE, clients=clients, seed=seed))
    rows = list(steady(5_000, rate=RATE, clients=10, seed=seed + 1))
    shift_us = known[-1].arrival_us + 60 * 10**6
    late = [replace(row, id=f"late {row.id}", arrival_us=row.arrival_us + shift_us) for row in rows]
    clock: list[float] = []

    def mark(row: TraceRow) -> TraceRow:
        clock.append(time.process_time())
        return row

    marked = (mark(row) if row is late[0] else row for row in [*known, *late])
    summary = Summary()
    cluster = Cluster(SimConfig(), marked, [summary], on_start=summary.start)
    with no_collections():
        cluster.run()  # the report, a line for each client, is not part of it
        return (time.process_time() - clock[0]) / len(late) * 1e6


def us_by_waiting(waiting: int, seed: int) -> float:
    """Return microseconds per request of 2,000 that are served while `waiting` more wait."""
    served = 2_000
    rows = burst(waiting + served, clients=50, seed=seed)
    clock: list[float] = []
    finished = 0
    cluster: Cluster

    def observe(event: object) -> None:
        nonlocal finished
        if type(event).__name__ == "Finish":
            finished += 1
            if finished in {256, 256 + served - 512}:
                clock.append(time.process_time())
                cluster.kernel.stopped = len(clock) == 2

    cluster = Cluster(SimConfig(max_misfits=32), rows, [observe])
    with no_collections():
        cluster.run()
    return (clock[1] - clock[0]) / (served - 512) * 1e6


def row_of(what: str, values: list[float], unit: str, **more: object) -> dict[str, object]:
    row = {
        "what": what,
        **more,
        f"{unit}_min": round(min(values), 1),
        f"{unit}_median": round(statistics.median(values), 1),
        f"{unit}_max": round(max(values), 1),
    }
    print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)
    return row


def main() -> None:
    """Measure, print, and write the rows."""
    rows = []
    for case in CASES:
        values = [requests_per_s(case, seed) for seed in range(RUNS)]
        more = {"replicas": case.replicas, "clients": case.clients}
        rows.append(row_of("requests a second", values, "per_s", **more))
    for clients in GROWTH:
        values = [us_by_clients(clients, seed) for seed in range(2)]
        rows.append(row_of("a request, by clients seen", values, "us", clients=clients))
    for waiting in GROWTH:
        values = [us_by_waiting(waiting, seed) for seed in range(2)]
        rows.append(row_of("a request, by requests waiting", values, "us", waiting=waiting))
    write_rows("simulator", rows, seeds=list(range(RUNS)))


if __name__ == "__main__":
    sys.exit(main())
