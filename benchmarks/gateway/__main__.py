"""What the gateway costs with D2LPM on: CPU per request and per streamed token, and added latency.

Caveats first. The engines are mocks on the same machine, and so is the load: what is reported is
the CPU time of the gateway's own process (from /proc/PID/schedstat, all its threads), which does
not depend on them, and latency as the difference to asking the same mocks directly in the same run.
Tail latencies on a shared machine are noise of its scheduler: only medians are reported. Where the
load average is above the number of cores, others were at work, and CPU times are up to twice what
they are on a quiet machine: compare targets of one run, not runs.
"""

import argparse
import statistics
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from os import getloadavg
from pathlib import Path
from socket import socket
from time import monotonic, sleep

import uvloop

from benchmarks.gateway.load import Load, requests
from benchmarks.record import write_rows

SIZES = {"2 KB": 2_048, "80 KB": 81_920}
CLIENTS, ENGINES, CONNECTIONS = 8, 2, 16
REQUESTS = {"2 KB": 6_000, "80 KB": 2_000}
RATE, SECONDS = 300.0, 5.0
STREAMS = 100


def cpu_us(pid: int) -> float:
    """CPU time of all threads of a process."""
    spent = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(path.read_text().split()[0]) for path in spent) / 1_000


def rss_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def free_ports(count: int) -> list[int]:
    sockets = [socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def our_gateway(policy: str, port: int, engines: list[int]) -> list[str]:
    ports = [str(number) for number in (port, *engines)]
    return [sys.executable, "-m", "benchmarks.gateway.under_test", policy, *ports]


def sglang_router(python: str, port: int, engines: list[int]) -> list[str]:
    urls = [f"http://127.0.0.1:{engine}" for engine in engines]
    launch = [python, "-m", "sglang_router.launch_router", "--policy", "cache_aware"]
    where = ["--host", "127.0.0.1", "--port", str(port), "--worker-urls", *urls]
    return [*launch, *where, "--log-level", "error"]


@contextmanager
def servers(command: Callable[[int, list[int]], list[str]]) -> Iterator[tuple[int, int, int]]:
    """Mock engines and a gateway in front of them: an engine's port, the gateway's, and its pid."""
    *engines, port = free_ports(ENGINES + 1)
    mock = [sys.executable, "-m", "benchmarks.gateway.mock_engine", *map(str, engines)]
    children = [subprocess.Popen(mock)]
    try:
        children.append(subprocess.Popen(command(port, engines), stdout=subprocess.DEVNULL))
        _await_ready(port)
        yield engines[0], port, children[1].pid
    finally:
        for child in children:
            child.terminate()
            child.wait()


def _await_ready(port: int) -> None:
    """Until a completion is answered: some routers listen long before they serve."""
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    body = next(requests(256, seed=0)).partition(b"\r\n\r\n")[2]
    headers = {"content-type": "application/json", "authorization": "Bearer key-0"}
    until = monotonic() + 30
    while monotonic() < until:
        try:
            urllib.request.urlopen(urllib.request.Request(url, body, headers))
        except (urllib.error.URLError, ConnectionError):
            sleep(0.05)
        else:
            return
    raise SystemExit("the gateway did not become ready")


async def cpu_per_request(port: int, pid: int, size: str, seed: int) -> tuple[float, float]:
    """CPU microseconds per request, and requests per second, as fast as they are answered."""
    source = requests(SIZES[size], seed=seed, clients=CLIENTS)
    warm = await Load(port, source).connect(CONNECTIONS)
    await warm.closed_loop(500)
    warm.close()
    load = await Load(port, source).connect(CONNECTIONS)
    before = cpu_us(pid)
    took = await load.closed_loop(REQUESTS[size])
    spent = cpu_us(pid) - before
    load.close()
    return spent / REQUESTS[size], REQUESTS[size] / took


async def cpu_per_token(port: int, pid: int, seed: int) -> float:
    """CPU microseconds per streamed event, with many streams side by side."""
    source = requests(2_048, seed=seed, clients=CLIENTS, stream=True)
    load = await Load(port, source).connect(STREAMS)
    before = cpu_us(pid)
    await load.closed_loop(STREAMS)
    spent = cpu_us(pid) - before
    load.close()
    return spent / load.events


async def median_latency_us(port: int, size: str, seed: int) -> float:
    """Median microseconds at a fixed rate."""
    load = await Load(port, requests(SIZES[size], seed=seed, clients=CLIENTS)).connect(64)
    latencies = await load.open_loop(RATE, int(RATE * SECONDS))
    load.close()
    return statistics.median(latencies) * 1e6


async def one_run(engine: int, port: int, pid: int, seed: int) -> dict[str, float]:
    measured: dict[str, float] = {}
    for size in SIZES:
        cpu, rate = await cpu_per_request(port, pid, size, seed)
        measured[f"CPU us per request, {size}"] = cpu
        measured[f"requests/s at saturation, {size}"] = rate
    measured["CPU us per streamed event"] = await cpu_per_token(port, pid, seed)
    for size in SIZES:
        direct = await median_latency_us(engine, size, seed)
        through = await median_latency_us(port, size, seed)
        measured[f"p50 us direct at {RATE:.0f}/s, {size}"] = direct
        measured[f"p50 us added at {RATE:.0f}/s, {size}"] = through - direct
    measured["RSS MB"] = rss_mb(pid)
    return measured


def summary(runs: list[dict[str, float]], target: str) -> list[dict[str, object]]:
    """Minimum, median and maximum over the runs."""
    rows: list[dict[str, object]] = []
    for what in runs[0]:
        values = sorted(run[what] for run in runs)
        low, middle, high = values[0], statistics.median(values), values[-1]
        print(f"{target:14} {what:34} {middle:10,.1f}  ({low:,.1f} to {high:,.1f})")
        spread = {"min": round(low, 1), "median": round(middle, 1), "max": round(high, 1)}
        rows.append({"target": target, "what": what, **spread})
    return rows


def main() -> None:
    """Measure, print, and write the rows; targets take turns, so that all see the same machine."""
    parser = argparse.ArgumentParser(prog="benchmarks.gateway")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--policy", default="d2lpm")
    parser.add_argument("--beside", metavar="PYTHON", help="a Python that has sglang-router")
    options = parser.parse_args()
    targets: dict[str, Callable[[int, list[int]], list[str]]] = {
        options.policy: partial(our_gateway, options.policy)
    }
    if options.beside:
        targets["sglang-router"] = partial(sglang_router, options.beside)
    runs: dict[str, list[dict[str, float]]] = {target: [] for target in targets}
    for seed in range(options.runs):
        for target, command in targets.items():
            with servers(command) as (engine, port, pid):
                runs[target].append(uvloop.run(one_run(engine, port, pid, seed)))
        print(f"run {seed + 1} of {options.runs} done", file=sys.stderr)
    rows = [row for target in targets for row in summary(runs[target], target)]
    write_rows(
        "gateway",
        rows,
        load_average=[round(load, 1) for load in getloadavg()],
        runs=options.runs,
        engines=ENGINES,
        clients=CLIENTS,
        connections=CONNECTIONS,
        to_beat="sglang-router cache_aware: 75 us at 2 KB, 199 us at 80 KB (another machine)",
    )


if __name__ == "__main__":
    main()
