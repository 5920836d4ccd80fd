"""One queue for 1,000 engines: a million requests of 100,000 clients, and how long engines wait for it.

    python -m benchmarks.fleet_scale

Three rows. `queue`: the fleet of `benchmarks.micro.fleet` with 100,000 waiting requests, until a million were
admitted; all parts of a request are measured, and the memory that the queue takes. `engines`, twice:
simulated engines under the gateway's queue (`--router fleet`), which decides one after the other in the time
that the first row measured for a decision, and for all parts of a request together; `delayed_share` is the
time that engines waited for these decisions, over the time of all engines.
"""

import argparse
import sys
import time
from dataclasses import replace

from benchmarks.micro.fleet import Fleet
from benchmarks.record import write_rows
from fairhit.cli.parser import OneLineParser
from fairhit_lab.sim.cluster import Cluster
from fairhit_lab.sim.config import SimConfig
from fairhit_lab.studies.ours.contention import LOADS

ENGINES, WAITING, CLIENTS = 1_000, 100_000, 100_000
# Seconds of arrivals that are simulated, of the workload `arena` at the rate of so many engines.
SIMULATED_S = 10
PARTS = ("decision", "arrival", "caches", "end")


def through_the_queue(requests: int) -> dict[str, object]:
    """Admit so many requests; return what each part of one costs, and the memory."""
    fleet = Fleet(ENGINES, WAITING, CLIENTS, seed=0)
    begun = time.monotonic()
    for _ in range(requests):
        fleet.decide()
    row: dict[str, object] = {
        "part": "queue", "engines": ENGINES, "waiting": WAITING, "clients": CLIENTS,
        "requests": requests, "seconds": round(time.monotonic() - begun, 1), **fleet.memory,
    }  # fmt: skip
    for part in PARTS:
        spent = sorted(fleet.spent[part])
        row[f"{part}_us"] = round(sum(spent) / len(spent) / 1_000, 1)
        row[f"{part}_p99_us"] = round(spent[len(spent) * 99 // 100] / 1_000, 1)
    return row


def before_engines(decision_us: int) -> dict[str, object]:
    """Simulate the engines; return what they waited for decisions that take so long."""
    load = LOADS["arena"]
    source = replace(load.source, settings=load.settings(ENGINES, SIMULATED_S))
    config = SimConfig(
        router="fleet", scheduler="fair", replicas=ENGINES, decision_us=decision_us, **load.engine
    )
    cluster = Cluster(config, source.rows(0, None))
    begun = time.process_time()

    def stop(_: object) -> None:
        cluster.kernel.stopped = True

    cluster.kernel.at(SIMULATED_S * 1_000_000, 1 << 60, stop, None)
    cluster.run()
    assert cluster.fleet is not None
    decisions, delayed_us = cluster.fleet.decisions, cluster.fleet.delayed_us
    passes = sum(replica.steps for replica in cluster.replicas)
    return {
        "part": "engines", "engines": ENGINES, "decision_us": decision_us,
        "decisions": decisions, "simulated_s": SIMULATED_S,
        "mean_delay_us": round(delayed_us / decisions, 1),
        "mean_pass_ms": round(ENGINES * SIMULATED_S * 1_000 / passes, 2),
        "delayed_share": round(delayed_us / (ENGINES * SIMULATED_S * 1_000_000), 6),
        "cpu_s": round(time.process_time() - begun, 1),
    }  # fmt: skip


def main() -> None:
    """Measure, print, and write the rows."""
    parser = OneLineParser(description=__doc__.split("\n")[0])
    parser.add_argument("--requests", type=int, default=1_000_000, metavar="N")
    options: argparse.Namespace = parser.parse_args()
    rows = [through_the_queue(options.requests)]
    print(rows[0])
    costs = [float(str(rows[0][f"{part}_us"])) for part in PARTS]
    for decision_us in (costs[0], sum(costs)):
        rows.append(before_engines(round(decision_us)))
        print(rows[-1])
    write_rows("fleet_scale", rows)


if __name__ == "__main__":
    sys.exit(main())
