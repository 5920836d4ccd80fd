"""Costs of the gateway beside the routers on PyPI: CPU a request and a streamed event, latency, memory.

Caveats first. The engines are mocks on the same machine, and so is the load. CPU is that of the
measured process alone, all its threads (/proc/PID/task/*/schedstat), so that mocks and load
matter only through caches and clock rates, which other processes change from second to second. All
servers run side by side and take turns of about a second: compare within a round, by the ratios. What
one core can serve is a million over that CPU time: neither load nor engines could keep up with it.
Tails of latency are noise of the machine's scheduler; delays of events say how long after the engine
wrote it an event was read by its caller.
"""

import statistics
from os import getloadavg

import uvloop

from benchmarks.gateway.contenders import COMMANDS, ENGINES, ROUTERS, Server, install, running
from benchmarks.gateway.load import Load, requests
from benchmarks.record import write_rows
from fairhit.cli.parser import OneLineParser

SIZES = {"2 KB": 2_048, "80 KB": 81_920}
CLIENTS, CONNECTIONS = 8, 16
REQUESTS = {"2 KB": 2_000, "80 KB": 500}
RATE, SECONDS = 300.0, 2.0
STREAMS = 100  # of 200 events, 50 a second: 5,000 events a second
SOAK_BATCH = 20_000
OURS = "fairhit"

Measured = dict[str, float]


async def cpu_per_request(server: Server, size: str, seed: int) -> float:
    """Return CPU microseconds per request, with a closed loop of requests."""
    source = requests(SIZES[size], seed=seed, clients=CLIENTS)
    load = await Load(server.port, source).connect(CONNECTIONS)
    await load.closed_loop(100)
    before = server.cpu_us()
    await load.closed_loop(REQUESTS[size])
    spent = server.cpu_us() - before
    load.close()
    return spent / REQUESTS[size]


async def streams(server: Server, seed: int) -> Measured:
    """Measure CPU microseconds per streamed event and the delay of events, with many concurrent streams."""
    source = requests(2_048, seed=seed, clients=CLIENTS, stream=True)
    load = await Load(server.port, source).connect(STREAMS)
    before = server.cpu_us()
    took = await load.closed_loop(STREAMS)
    spent = server.cpu_us() - before
    load.close()
    delays = sorted(load.delays_us)
    return {
        "CPU us per streamed event": spent / load.events,
        "streamed events/s": load.events / took,
        "p50 us delay of an event": delays[len(delays) // 2],
        "p99 us delay of an event": delays[len(delays) * 99 // 100],
    }


async def median_latency_us(port: int, size: str, seed: int) -> float:
    """Return the median latency in microseconds at a fixed request rate."""
    load = await Load(port, requests(SIZES[size], seed=seed, clients=CLIENTS)).connect(64)
    latencies = await load.open_loop(RATE, int(RATE * SECONDS))
    load.close()
    return statistics.median(latencies) * 1e6


async def measure(engine: int, server: Server, seed: int) -> Measured:
    """Take all measurements of one server."""
    measured: Measured = {}
    for size in SIZES:
        cpu = await cpu_per_request(server, size, seed)
        measured[f"CPU us per request, {size}"] = cpu
        measured[f"requests/s a core, {size}"] = 1e6 / cpu
    measured |= await streams(server, seed)
    for size in SIZES:
        direct = await median_latency_us(engine, size, seed)
        through = await median_latency_us(server.port, size, seed)
        measured[f"p50 us added at {RATE:.0f}/s, {size}"] = through - direct
    measured["RSS MB"] = server.rss_mb()
    return measured


async def memory_after(server: Server, count: int) -> float:
    """Return the RSS in MB after `count` requests of 2 KB."""
    source = requests(SIZES["2 KB"], seed=1, clients=CLIENTS)
    load = await Load(server.port, source).connect(CONNECTIONS)
    for _ in range(count // SOAK_BATCH):
        await load.closed_loop(SOAK_BATCH)
        load.latencies.clear()
    load.close()
    return server.rss_mb()


def spread(values: list[float], digits: int = 1) -> dict[str, float]:
    """Return the minimum, median and maximum."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return {"min": round(low, digits), "median": round(middle, digits), "max": round(high, digits)}


def summary(rounds: list[dict[str, Measured]]) -> list[dict[str, object]]:
    """Summarize each number over the rounds, also as a multiple of this gateway's in the same round."""
    rows: list[dict[str, object]] = []
    for name in rounds[0]:
        for what in rounds[0][name]:
            values = spread([each[name][what] for each in rounds])
            row: dict[str, object] = {"target": name, "what": what, **values}
            shown = f"{name:28} {what:30} {values['median']:10,.1f}"
            if name != OURS and OURS in rounds[0] and "added" not in what:
                ratio = spread([each[name][what] / each[OURS][what] for each in rounds], 2)
                row["times_ours"] = ratio
                shown += f"   {ratio['median']:5.2f} times ours ({ratio['min']} to {ratio['max']})"
            print(shown)
            rows.append(row)
    return rows


def main() -> None:
    """Measure, print, and write the rows."""
    parser = OneLineParser(prog="benchmarks.gateway")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--soak", type=int, default=0, metavar="REQUESTS", help="then RSS of ours")
    parser.add_argument("--dry", action="store_true", help="print, and write nothing")
    options = parser.parse_args()
    install(options.only)
    with running(options.only) as (engine, servers):
        rounds = []
        for number in range(options.rounds):
            turns = servers[number % len(servers) :] + servers[: number % len(servers)]
            made = {s.name: uvloop.run(measure(engine, s, number)) for s in turns}
            rounds.append({name: made[name] for name in options.only})
            print(f"round {number + 1} of {options.rounds} done", flush=True)
        rows = summary(rounds)
        if options.soak:
            rss = uvloop.run(memory_after(servers[0], options.soak))
            print(f"{servers[0].name}: {rss:.1f} MB after {options.soak:,} requests more")
            what = f"RSS MB after {options.soak:,} requests"
            rows.append({"target": servers[0].name, "what": what, **spread([rss])})
    if not options.dry:
        write_rows(
            "gateway",
            rows,
            load_average=[round(load, 1) for load in getloadavg()],
            rounds=options.rounds,
            engines=ENGINES,
            clients=CLIENTS,
            connections=CONNECTIONS,
            routers={name: package for name, (package, _) in ROUTERS.items()},
        )


if __name__ == "__main__":
    main()
