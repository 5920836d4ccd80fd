"""A day in a large fleet: 1,000,000 requests of 100,000 clients on 1,000 replicas, in time and memory.

Also the memory of an idle client: bytes in scheduler, router and summary together.
"""

import resource
import sys
import time
import tracemalloc
from collections.abc import Iterable, Iterator

from benchmarks.record import write_rows
from benchmarks.sim.speed import COLD_RATE, no_collections
from benchmarks.sim.traffic import steady
from fairhit_lab.metrics.summary.summary import Summary
from fairhit_lab.sim.cluster import Cluster
from fairhit_lab.sim.config import SimConfig
from fairhit_lab.traces.trace import TraceRow

REQUESTS, REPLICAS, CLIENTS = 1_000_000, 1_000, 100_000
DAY_S = 86_400


def shown(rows: Iterable[TraceRow]) -> Iterator[TraceRow]:
    """Yield the rows unchanged; print the progress at every twentieth of them."""
    for number, row in enumerate(rows):
        if number % (REQUESTS // 20) == 0:
            print(f"{number} of {REQUESTS} requests", flush=True)
        yield row


def day() -> dict[str, object]:
    """Simulate the day, making rows as they are read; return its row."""
    summary = Summary()
    rows = shown(steady(REQUESTS, rate=REQUESTS / DAY_S, clients=CLIENTS, seed=0))
    cluster = Cluster(SimConfig(replicas=REPLICAS), rows, [summary], on_start=summary.start)
    with no_collections():
        begun, cpu = time.monotonic(), time.process_time()
        cluster.run()
        report = summary.as_dict()
        wall_s, cpu_s = time.monotonic() - begun, time.process_time() - cpu
    assert report["requests"]["finished"] == REQUESTS
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    row = {"what": "a day", "wall_s": round(wall_s, 1), "cpu_s": round(cpu_s, 1)}
    return {**row, "peak_gib": round(peak, 2), "hit_rate": report["locality"]["hit_rate"]}


def idle_client_bytes(clients: int = 10_000) -> dict[str, object]:
    """Growth from `clients` to twice as many clients, each of which was served once, by one replica."""
    sizes = []
    for count in (clients, 2 * clients):
        summary = Summary()
        rows = steady(count, rate=COLD_RATE, clients=10**9, seed=1)
        config = SimConfig(kv_tokens=20_000, max_misfits=32)
        cluster = Cluster(config, rows, [summary], on_start=summary.start)
        tracemalloc.start()
        cluster.run()
        sizes.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
    return {"what": "bytes of an idle client", "bytes": (sizes[1] - sizes[0]) // clients}


def main() -> None:
    """Measure, print, and write the rows."""
    rows = [idle_client_bytes(), day()]
    for row in rows:
        print(row, flush=True)
    write_rows("simulator_day", rows, seeds=[0, 1])


if __name__ == "__main__":
    sys.exit(main())
