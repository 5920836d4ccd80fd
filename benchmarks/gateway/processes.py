"""CPU a request of one and of two processes that share a port and their clients' deficits, and the gap.

    python -m benchmarks.gateway.processes

A gateway with its queue, keys and metrics before two mock engines, with `--processes` 1 and 2, side by side
and in turns, a closed loop of requests of 2 KB. CPU is that of all its processes. Requests/s are what this
machine gives, whose cores serve the load and the engines as well: on two cores a second process cannot show
what it would add.

The gap is of two clients with 144 and 48 connections before engines that take 10 ms for an answer and are
sent 16 requests at a time by each process, so that both clients always wait: how far apart their service
grew over any part of the run, in tokens, all requests being alike. Beside it stands what
docs/explanation/several-gateways.md guarantees at the measured rate.
"""

import argparse
import asyncio
import statistics
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import uvloop

from benchmarks.gateway import contenders
from benchmarks.gateway.load import Caller, Load, requests
from benchmarks.record import write_rows
from fairhit.cli.parser import OneLineParser

SIZE, REQUESTS, CONNECTIONS, CLIENTS = 2_048, 4_000, 32, 8
COUNTS = (1, 2)
FLOOD, LIGHT = 144, 48  # connections of the two clients
IN_FLIGHT = 16  # at an engine, from a process, while the gap is measured
QUANTUM = 4_096
# Of each request, as the mock engine reports it: 116 tokens to compute and 50 outputs.
SERVICE = 116 + 2 * 50
EXCHANGE_S = 0.1  # the default --share-interval-secs


def command(
    count: int, flags: Sequence[str], port: int, metrics: int, engines: list[int]
) -> list[str]:
    """Return the command of a gateway with `count` processes."""
    keys = [f"--tenant-api-key=tenant-{n}:key-{n}" for n in range(CLIENTS)]
    urls = [f"http://127.0.0.1:{engine}" for engine in engines]
    return [
        sys.executable, "-m", "fairhit", "gateway", "--port", str(port), "--queue", "gateway",
        "--processes", str(count), "--prometheus-port", str(metrics), *keys, *flags,
        "--worker-urls", *urls,
    ]  # fmt: skip


def cpu_us(pid: int) -> float:
    """Return the CPU time of a process and of its children."""
    family = [pid, *(int(each) for each in _children(pid))]
    return sum(contenders.Server("", 0, each).cpu_us() for each in family)


def _children(pid: int) -> list[str]:
    listed = Path(f"/proc/{pid}/task").glob("*/children")
    return [each for path in listed for each in path.read_text().split()]


async def measure(server: contenders.Server, seed: int) -> tuple[float, float]:
    """Return CPU microseconds per request, and requests per second."""
    load = await Load(server.port, requests(SIZE, seed=seed, clients=CLIENTS)).connect(CONNECTIONS)
    await load.closed_loop(200)
    before = cpu_us(server.pid)
    seconds = await load.closed_loop(REQUESTS)
    spent = cpu_us(server.pid) - before
    load.close()
    return spent / REQUESTS, REQUESTS / seconds


class Race(Load):
    """The load of one client; each answer moves `lead`, which is that of all."""

    def __init__(self, port: int, client: int, lead: list[int], step: int) -> None:
        key = b"Bearer key-%d" % client
        asked = (
            # As long as before.
            each.replace(b"Bearer key-0", key, 1).replace(b'"max_tokens":50', b'"slow":true    ', 1)
            for each in requests(SIZE, seed=client, clients=1)
        )
        super().__init__(port, asked)
        self._lead, self._step = lead, step

    def answered(self, caller: Caller, latency: float) -> None:
        """See `Load.answered`."""
        self._lead.append(self._lead[-1] + self._step)
        super().answered(caller, latency)


async def gap(server: contenders.Server) -> tuple[float, float]:
    """Return the widest gap of two clients whose requests always wait, and answers per second."""
    lead = [0]
    races = [
        await Race(server.port, client, lead, step).connect(connections)
        for client, connections, step in ((0, FLOOD, 1), (1, LIGHT, -1))
    ]
    running = [asyncio.ensure_future(race.closed_loop(REQUESTS)) for race in races]
    await asyncio.sleep(4 * EXCHANGE_S)  # the bound begins after 2 (T + d)
    begin = len(lead)
    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    both = lead[begin:]  # then one of them has nothing left to ask
    await asyncio.gather(*running)
    for race in races:
        race.close()
    return (max(both) - min(both)) * SERVICE, len(lead) / max(each.result() for each in running)


def bound(count: int, rate: float) -> float:
    """2 Q + 2 (U + R), as weights are 1; one process exchanges nothing, and so has no R."""
    in_flight = count * contenders.ENGINES * IN_FLIGHT * SERVICE
    unknown = 2 * EXCHANGE_S * rate * SERVICE if count > 1 else 0
    return 2 * QUANTUM + 2 * (in_flight + unknown)


def main() -> None:
    """Measure, print, and write the rows."""
    parser = OneLineParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    options: argparse.Namespace = parser.parse_args()
    plain = {f"processes {count}": count for count in COUNTS}
    queueing = {f"{name}, queueing": count for name, count in plain.items()}
    limits = (
        "--scheduler", "dlpm", "--quantum", str(QUANTUM), "--max-engine-requests", str(IN_FLIGHT),
    )  # fmt: skip
    for names, flags in ((plain, ()), (queueing, limits)):
        for name, count in names.items():
            contenders.COMMANDS[name] = partial(command, count, flags)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in (*plain, *queueing)}
    with contenders.running(list(found)) as (_, servers):
        for number in range(options.rounds):
            for server in servers:
                run = gap(server) if server.name in queueing else measure(server, number)
                found[server.name].append(uvloop.run(run))
                print(server.name, *(round(value, 1) for value in found[server.name][-1]))
    rows = [_row(count, found[name], found[f"{name}, queueing"]) for name, count in plain.items()]
    write_rows("gateway_processes", rows, rounds=options.rounds)


def _row(
    count: int, runs: list[tuple[float, float]], races: list[tuple[float, float]]
) -> dict[str, object]:
    """The row of one number of processes: CPU and rates without a limit, then gaps while requests wait."""
    rate = statistics.median(rate for _, rate in races)
    return {
        "processes": count,
        "cpu_us": sorted(round(cpu, 1) for cpu, _ in runs),
        "median_cpu_us": round(statistics.median(cpu for cpu, _ in runs), 1),
        "median_requests_per_s": round(statistics.median(rate for _, rate in runs), 1),
        "gap_tokens": sorted(round(widest) for widest, _ in races),
        "bound_tokens": round(bound(count, rate)),
        "queueing_requests_per_s": round(rate, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
