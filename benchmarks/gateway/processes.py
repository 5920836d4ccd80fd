"""CPU a request of one and of two processes that share a port and the deficits of their clients.

    python -m benchmarks.gateway.processes

A gateway with its queue, keys and metrics before two mock engines, with `--processes` 1 and 2, side by side
and in turns, a closed loop of requests of 2 KB. CPU is that of all its processes. Requests/s are what this
machine gives, whose cores serve the load and the engines as well: on two cores a second process cannot show
what it would add.
"""

import argparse
import statistics
import sys
from pathlib import Path

import uvloop

from benchmarks.gateway import contenders
from benchmarks.gateway.load import Load, requests
from benchmarks.record import write_rows
from fairhit.cli.parser import OneLineParser

SIZE, REQUESTS, CONNECTIONS, CLIENTS = 2_048, 4_000, 32, 8
COUNTS = (1, 2)


def command(count: int, port: int, metrics: int, engines: list[int]) -> list[str]:
    """Return the command of a gateway with `count` processes."""
    keys = [f"--tenant-api-key=tenant-{n}:key-{n}" for n in range(CLIENTS)]
    urls = [f"http://127.0.0.1:{engine}" for engine in engines]
    return [
        sys.executable, "-m", "fairhit", "gateway", "--port", str(port), "--queue", "gateway",
        "--processes", str(count), "--prometheus-port", str(metrics), *keys, "--worker-urls", *urls,
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


def main() -> None:
    """Measure, print, and write the rows."""
    parser = OneLineParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    options: argparse.Namespace = parser.parse_args()
    names = {f"processes {count}": count for count in COUNTS}
    contenders.COMMANDS.update(
        {
            name: lambda port, metrics, engines, count=count: command(count, port, metrics, engines)
            for name, count in names.items()
        }
    )
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    with contenders.running(list(names)) as (_, servers):
        for number in range(options.rounds):
            for server in servers:
                found[server.name].append(uvloop.run(measure(server, number)))
                print(server.name, *(round(value, 1) for value in found[server.name][-1]))
    rows: list[dict[str, object]] = [
        {
            "processes": names[name],
            "cpu_us": sorted(round(cpu, 1) for cpu, _ in runs),
            "median_cpu_us": round(statistics.median(cpu for cpu, _ in runs), 1),
            "median_requests_per_s": round(statistics.median(rate for _, rate in runs), 1),
        }
        for name, runs in found.items()
    ]
    write_rows("gateway_processes", rows, rounds=options.rounds)


if __name__ == "__main__":
    sys.exit(main())
