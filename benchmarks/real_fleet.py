"""Routers and queues in front of the same real engines: service and waiting times of each tenant.

    python -m benchmarks.real_fleet --rounds 3 --seconds 15
    FAIRHIT_SGLANG=.venvs/sglang/bin/python python -m benchmarks.real_fleet --engine sglang

Three engines with the demo model on CPU, 4 running requests and 4,096 tokens of KV each, of vLLM or SGLang;
once as they come (their own order: first come, first served), once with the plug-in. In front of them, one
after the other: the gateway with its queue under `fair`, with and without holds, and under `dlpm`, the
gateway without a queue and with d2lpm, and the cache-aware policies of sglang-router and vllm-router. Peers
cannot tell an engine whose request it is, so they stand in front of engines without the plug-in only.

Three tenants keep a fixed number of requests in flight, each caller one: `heavy` and `light` share prefixes
within the tenant, of `private` every prompt is new from its first word. The prefixes together do not fit
into the engines' caches. Rounds take the systems in turns, each with its own seed; the first seconds of each
turn are not counted.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.sglang.server import Server

from benchmarks.gateway import contenders
from benchmarks.one_engine import SGLANG, SGLANG_FLAGS, VLLM
from benchmarks.record import write_rows
from fairhit.cli.parser import OneLineParser
from fairhit.local import engine_process as local
from fairhit.local.demo import two_tenants as flood
from fairhit.local.demo.closed_loop import ClosedLoop, Served, Tenant, now_us

HEAVY, LIGHT, PRIVATE = "heavy", "light", "private"
CALLERS = {HEAVY: 45, LIGHT: 8, PRIVATE: 8}
PREFIXES = {HEAVY: 8, LIGHT: 4}
WARM_UP_S = 6.0
START_S = 180.0
STOCK, PLUGIN = "stock", "plug-in"
PEERS = ("sglang-router", "vllm-router")


@dataclass(frozen=True)
class System:
    """What stands in front of which engines; `flags` of our gateway, none for a peer."""

    name: str
    engines: str
    flags: tuple[str, ...] = ()


SYSTEMS = (
    System("fleet queue, fair", STOCK, ("--queue", "gateway", "--scheduler", "fair")),
    System(
        "fleet queue, fair, no holds",
        STOCK,
        ("--queue", "gateway", "--scheduler", "fair", "--max-hold-secs", "0"),
    ),
    System("fleet queue, dlpm", STOCK, ("--queue", "gateway", "--scheduler", "dlpm")),
    System("d2lpm", STOCK, ("--queue", "engine", "--policy", "d2lpm")),
    System("sglang-router", STOCK),
    System("vllm-router", STOCK),
    System("fleet queue, fair", PLUGIN, ("--queue", "gateway", "--scheduler", "fair")),
    System("d2lpm", PLUGIN, ("--queue", "engine", "--policy", "d2lpm")),
)


def tenants(seed: int) -> tuple[Tenant, ...]:
    """Return the three tenants."""
    return tuple(
        Tenant(name=name, key=f"key-of-{name}", callers=callers, bodies=_bodies(name, seed))
        for name, callers in CALLERS.items()
    )


def _bodies(name: str, seed: int) -> Callable[[int], Iterator[bytes]]:
    rng = random.Random(f"{seed} {name}")
    shared = [_words(rng, flood.PREFIX_WORDS) for _ in range(PREFIXES.get(name, 0))]

    def ask(caller: int) -> Iterator[bytes]:
        own = random.Random(f"{seed} {name} {caller}")
        while True:
            system = own.choice(shared) if shared else _words(own, flood.PREFIX_WORDS)
            request = {
                "model": local.DEMO,
                "messages": [
                    {"role": "system", "content": system},
                    {"role": "user", "content": _words(own, flood.QUESTION_WORDS)},
                ],
                "max_tokens": flood.OUTPUT_TOKENS,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            yield json.dumps(request).encode()

    return ask


def _words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(flood.WORDS, k=count))


def start_vllm(stack: ExitStack, kind: str, count: int) -> list[int]:
    """Start vLLM engines and wait until each answers; return their ports."""
    ports = local.free_ports(count)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    options = local.EngineOptions(
        scheduler="fair", api_key="", arguments=("--stream-interval", str(flood.STREAM_INTERVAL))
    )
    model = local.find_model(local.DEMO)
    for number, port in enumerate(ports):
        command = local.command(options, model, number=number, port=port)
        environment = local.environment(options, model, folder / f"counters-{number}")
        (folder / f"counters-{number}").mkdir()
        environment.pop("VLLM_API_KEY")
        if kind == STOCK:
            for flag in ("--scheduler-cls", "--additional-config"):
                at = command.index(flag)
                del command[at : at + 2]
        log = stack.enter_context((folder / f"engine-{number}.log").open("w"))
        _start(stack, command, env=environment, stdout=log, stderr=log)
    until = time.monotonic() + START_S
    for port in ports:
        while not local.completes(port, local.DEMO, "none"):
            if time.monotonic() > until:
                raise SystemExit(f"no engine answers at port {port}")
            time.sleep(0.5)
    return ports


def start_sglang(stack: ExitStack, kind: str, count: int) -> list[int]:
    """Start SGLang engines and wait until each answers; return their ports."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    policy = "fcfs" if kind == STOCK else "fair"
    servers = []
    for port in local.free_ports(count):
        (folder / str(port)).mkdir()
        servers.append(Server(folder / str(port), policy, *SGLANG_FLAGS, port=port))
        stack.callback(servers[-1].stop)
    for server in servers:
        server.wait_until_it_answers()
    return [server.port for server in servers]


START = {VLLM: start_vllm, SGLANG: start_sglang}


def _start(stack: ExitStack, command: list[str], **settings: Any) -> None:
    child = subprocess.Popen(command, **settings)
    stack.callback(child.wait)
    stack.callback(child.terminate)


def gateway_command(system: System, port: int, metrics: int, engines: list[int]) -> list[str]:
    """Return the command of our gateway or of a peer."""
    if system.name in PEERS:
        return contenders.router(contenders.ROUTERS[system.name][1], port, metrics, engines)
    urls = [f"http://127.0.0.1:{each}" for each in engines]
    keys = [each for name in CALLERS for each in ("--tenant-api-key", f"{name}:key-of-{name}")]
    return [
        sys.executable, "-m", "fairhit", "gateway", "--port", str(port), "--worker-urls", *urls,
        "--worker-quantum", str(flood.WORKER_QUANTUM), *system.flags, *keys,
    ]  # fmt: skip


def run(system: System, engines: list[int], *, seconds: float, seed: int) -> dict[str, object]:
    """Put the system in front of the engines, load it, and return what each tenant got."""
    with ExitStack() as stack:
        port, metrics = contenders.free_ports(2)
        quiet = subprocess.DEVNULL
        _start(stack, gateway_command(system, port, metrics, engines), env=dict(os.environ),
               stdout=quiet, stderr=quiet)  # fmt: skip
        until = time.monotonic() + START_S
        while not local.completes(port, local.DEMO, f"key-of-{HEAVY}"):
            if time.monotonic() > until:
                raise SystemExit(f"{system.name} does not answer")
            time.sleep(0.2)
        loop = ClosedLoop(host=local.HOST, port=port, tenants=tenants(seed))
        begin_us = now_us() + round(WARM_UP_S * 1e6)
        asyncio.run(loop.run(WARM_UP_S + seconds))
    row = summary(loop.records, begin_us, begin_us + round(seconds * 1e6))
    row = {"system": system.name, "engines": system.engines, "seed": seed, **row,
           "failures": len(loop.failures)}  # fmt: skip
    print(row, flush=True)
    return row


def summary(records: list[Served], begin_us: int, end_us: int) -> dict[str, object]:
    """Return requests/s, cache hits and waits of each tenant and of all. Pure."""
    row: dict[str, object] = {}
    done = [one for one in records if begin_us <= one.done_us < end_us]
    seconds = (end_us - begin_us) / 1e6
    for name in CALLERS:
        own = [one for one in done if one.tenant == name]
        waits = sorted((one.first_us - one.sent_us) / 1e3 for one in own)
        row[name] = {
            "requests_per_s": round(len(own) / seconds, 2),
            "hit_rate": round(_hits(own), 3),
            "first_token_ms_p50": round(waits[len(waits) // 2]) if waits else None,
            "first_token_ms_p99": round(waits[len(waits) * 99 // 100]) if waits else None,
        }
    row["requests_per_s"] = round(len(done) / seconds, 2)
    row["hit_rate"] = round(_hits(done), 3)
    return row


def _hits(records: list[Served]) -> float:
    prompts = sum(one.prompt_len for one in records)
    return sum(one.cached_len for one in records) / prompts if prompts else 0.0


def medians(rows: list[dict[str, Any]]) -> list[dict[str, object]]:
    """Return for each system the median over the rounds, and all values beside it."""
    made: list[dict[str, object]] = []
    for system in SYSTEMS:
        own = [
            row for row in rows
            if row["system"] == system.name and row["engines"] == system.engines
        ]  # fmt: skip
        if not own:
            continue
        line: dict[str, object] = {"system": system.name, "engines": system.engines}
        for key in ("requests_per_s", "hit_rate"):
            line[key] = statistics.median(row[key] for row in own)
        for name in CALLERS:
            for key in ("requests_per_s", "first_token_ms_p50", "first_token_ms_p99"):
                values = [row[name][key] for row in own if row[name][key] is not None]
                line[f"{name}_{key}"] = [statistics.median(values), *sorted(values)]
        made.append(line)
    return made


def main() -> None:
    """Run all systems in turns and write the rows."""
    parser = OneLineParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--engines", type=int, default=3)
    parser.add_argument("--engine", choices=list(START), default=VLLM)
    given: argparse.Namespace = parser.parse_args()
    contenders.install([*PEERS])
    rows: list[dict[str, Any]] = []
    for kind in (STOCK, PLUGIN):
        with ExitStack() as stack:
            engines = START[given.engine](stack, kind, given.engines)
            for seed in range(given.rounds):
                rows += [
                    run(system, engines, seconds=given.seconds, seed=seed)
                    for system in SYSTEMS
                    if system.engines == kind
                ]
    name = "real_fleet" if given.engine == VLLM else f"real_fleet_{given.engine}"
    write_rows(name, rows, medians=medians(rows), callers=CALLERS, prefixes=PREFIXES,
               number_of_engines=given.engines, warm_up_s=WARM_UP_S)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
