"""The two-tenant flood on one engine, vLLM's and SGLang's, with nothing but the plug-in.

    FAIRHIT_SGLANG=.venvs/sglang/bin/python python -m benchmarks.one_engine

Both are real servers of one demo model on CPU with 4 running requests and 4,096 tokens of KV. The tenants
are those of `fairhit demo`, at half as many callers for half as many engines: heavy keeps 30 requests in
flight, light 8, and the prefixes of both do not fit into the cache together. No gateway: a field of the
body says whose request it is. SGLang's fcfs and lpm are its own; vLLM has no lpm, so there it is ours.

The second load is the case of SGLang's issue 31954: one tenant, most of whose requests share a prefix, and
a few do not; it follows the first on the same server. Rounds take the policies in turns, each from a fresh
server, each round with its own seed.

Seconds are those of a machine that may be busy with something else in one run and not in the next. So each
wait is also given in answers: how many requests, of any tenant, the engine answered meanwhile. As many
callers ask under each policy, so that the mean over all of them is the same; its distribution over
tenants differs.
"""

import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from bisect import bisect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.sglang.server import PYTHON, running

from benchmarks.record import write_rows
from fairhit.cli.parser import OneLineParser
from fairhit.local import engine_process as local
from fairhit.local.demo import two_tenants as flood
from fairhit.local.demo.closed_loop import ClosedLoop, Served, Tenant, now_us

CALLERS = {name: callers // 2 for name, callers in flood.CALLERS.items()}
HOT, COLD = "hot", "cold"
ONE_TENANT = {HOT: 16, COLD: 2}
MAX_OVERTAKE = 500  # tokens of prompts; a hot request has about 45 of its own
WARM_UP_S = 6.0
VLLM, SGLANG = "vllm", "sglang"
SGLANG_FLAGS = (
    "--max-total-tokens", str(flood.KV_TOKENS), "--stream-interval", str(flood.STREAM_INTERVAL),
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A server: the engine, its policy and plug-in settings, and the loads on it."""

    engine: str
    policy: str
    loads: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)


FLOOD, MIXED = "two tenants", "one tenant"
CASES = (
    Case(SGLANG, "fcfs", (FLOOD,)),
    Case(SGLANG, "lpm", (FLOOD, MIXED)),
    Case(SGLANG, "dlpm", (FLOOD, MIXED)),
    Case(SGLANG, "dlpm", (MIXED,), {"FAIRHIT_MAX_OVERTAKE": str(MAX_OVERTAKE)}),
    Case(VLLM, "fcfs", (FLOOD,)),
    Case(VLLM, "lpm", (FLOOD,)),
    Case(VLLM, "dlpm", (FLOOD,)),
)


def named(body: bytes, client: str) -> bytes:
    """The body with its client, as each plug-in reads it."""
    said = json.loads(body)
    return json.dumps(
        {**said, "custom_params": {"fair_client": client}, "vllm_xargs": {"fair_client": client}}
    ).encode()


def two_tenants(seed: int) -> tuple[Tenant, ...]:
    """Return the requests of the demo."""

    def bodies(name: str) -> Callable[[int], Iterator[bytes]]:
        made = flood.bodies(name, seed)
        return lambda caller: (named(body, name) for body in made(caller))

    return tuple(
        Tenant(name=name, key="none", callers=callers, bodies=bodies(name))
        for name, callers in CALLERS.items()
    )


def one_tenant(seed: int) -> tuple[Tenant, ...]:
    """Callers with one system prompt, and callers with another one each time; one client to the engine."""

    def bodies(name: str) -> Callable[[int], Iterator[bytes]]:
        shared = words(random.Random(f"{seed} {name}"), flood.PREFIX_WORDS)

        def ask(caller: int) -> Iterator[bytes]:
            own = random.Random(f"{seed} {name} {caller}")
            while True:
                system = shared if name == HOT else words(own, flood.PREFIX_WORDS)
                question = words(own, flood.QUESTION_WORDS)
                yield named(request(system, question), "one")

        return ask

    return tuple(
        Tenant(name=name, key="none", callers=callers, bodies=bodies(name))
        for name, callers in ONE_TENANT.items()
    )


def words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(flood.WORDS, k=count))


def request(system: str, question: str) -> bytes:
    """As the demo asks."""
    return json.dumps(
        {
            "model": local.DEMO,
            "messages": [
                {"role": "system", "content": system},
                {"role": "user", "content": question},
            ],
            "max_tokens": flood.OUTPUT_TOKENS,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()


TENANTS = {FLOOD: two_tenants, MIXED: one_tenant}


async def under_load(port: int, tenants: tuple[Tenant, ...], seconds: float) -> list[Served]:
    """Return the callers' records, those of requests still waiting at the end included."""
    loop = ClosedLoop(host=local.HOST, port=port, tenants=tenants)
    await loop.run(WARM_UP_S + seconds)
    assert not loop.failures, loop.failures[:3]
    return loop.records


def run(case: Case, load: str, port: int, seed: int, seconds: float) -> dict[str, Any]:
    """Run a load on a running server; return both tenants' latencies and the cached share."""
    begin_us = now_us() + round(WARM_UP_S * 1e6)
    records = asyncio.run(under_load(port, TENANTS[load](seed), seconds))
    window = (begin_us, begin_us + round(seconds * 1e6))
    row: dict[str, Any] = {
        "engine": case.engine, "policy": case.policy, "load": load, "seed": seed,
        "settings": dict(case.settings),
    }  # fmt: skip
    if load == FLOOD:
        result = flood.summarize(case.policy, "none", records, window, failures=0)
        row |= {key: value for key, value in asdict(result).items() if key not in {"router", "gap"}}
    names = dict.fromkeys(record.tenant for record in records)
    row["callers"] = {name: waits(records, name, window) for name in names}
    show(row)
    return row


def waits(records: list[Served], name: str, window: tuple[int, int]) -> dict[str, Any]:
    """Of all that were under way in the window, with all their waiting; milliseconds."""
    known = [
        record
        for record in records
        if record.tenant == name and record.sent_us < window[1] and window[0] <= record.done_us
    ]
    took = sorted((record.done_us - record.sent_us) / 1e3 for record in known)
    first = sorted((record.first_us - record.sent_us) / 1e3 for record in known)
    ends = sorted(record.done_us for record in records)
    passed = sorted(bisect(ends, record.done_us) - bisect(ends, record.sent_us) for record in known)
    prompt_len = sum(record.prompt_len for record in known)
    return {
        "answered": sum(window[0] <= record.done_us < window[1] for record in known),
        "latency_ms_mean": round(sum(took) / len(took), 1),
        "latency_ms_p50": round(took[len(took) // 2], 1),
        "latency_ms_p95": round(took[len(took) * 95 // 100], 1),
        "latency_ms_max": round(took[-1], 1),
        "answers_mean": round(sum(passed) / len(passed), 2),
        "answers_p95": passed[len(passed) * 95 // 100],
        "first_token_ms_mean": round(sum(first) / len(first), 1),
        "hit_rate": round(sum(record.cached_len for record in known) / prompt_len, 4),
    }


def show(row: dict[str, Any]) -> None:
    about = f"{row['engine']:7} {row['policy']:5} {row['load']:12} seed {row['seed']}"
    hits = f"hit rate {row['hit_rate']:.3f}" if "hit_rate" in row else ""
    print(about, row["settings"] or "", hits, flush=True)
    for name, values in row["callers"].items():
        print(f"    {name:6}", "  ".join(f"{key} {value:,}" for key, value in values.items()))


@contextlib.contextmanager
def server(case: Case, folder: Path) -> Iterator[int]:
    """The port of a server that answers; stopped at the end."""
    if case.engine == SGLANG:
        settings = {"FAIRHIT_QUANTUM": str(flood.QUANTUM), **case.settings}
        with running(folder, case.policy, *SGLANG_FLAGS, environment=settings) as started:
            yield started.port
        return
    (port,) = local.free_ports(1)
    options = local.EngineOptions(
        scheduler=case.policy,
        quantum=flood.QUANTUM if case.policy == "dlpm" else None,
        arguments=("--stream-interval", str(flood.STREAM_INTERVAL)),
        api_key="none",
    )
    model = local.find_model(options.model)
    with (folder / "vllm.log").open("wb") as log:
        process = subprocess.Popen(
            local.command(options, model, number=0, port=port),
            env=local.environment(options, model, folder),
            stdout=log,
            stderr=log,
        )
    try:
        while not local.completes(port, model.name, options.api_key):
            assert process.poll() is None, (folder / "vllm.log").read_text()[-4000:]
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.5)
        yield port
    finally:
        process.terminate()
        process.wait(60)


def sglang_version() -> str:
    """Of the environment that runs it."""
    ask = "import importlib.metadata as m; print(m.version('sglang'))"
    return subprocess.run(
        [PYTHON, "-c", ask], capture_output=True, text=True, check=True
    ).stdout.strip()


def main() -> None:
    parser = OneLineParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--engines", nargs="+", default=[SGLANG, VLLM])
    parser.add_argument("--policies", nargs="+", default=["fcfs", "lpm", "dlpm"])
    parser.add_argument("--loads", nargs="+", default=[FLOOD, MIXED])
    parser.add_argument("--dry", action="store_true", help="write no results")
    options = parser.parse_args()
    # Servers are sessions of their own: who only ends this process would leave them running.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    load_at_start = round(os.getloadavg()[0], 2)
    rows: list[dict[str, Any]] = []
    cases = [case for case in CASES if case.policy in options.policies]
    for engine, seed, case in itertools.product(options.engines, range(options.rounds), cases):
        loads = [load for load in case.loads if load in options.loads]
        if case.engine == engine and loads:
            with tempfile.TemporaryDirectory() as folder, server(case, Path(folder)) as port:
                rows += [run(case, load, port, seed, options.seconds) for load in loads]
            if not options.dry:
                write(rows, options.seconds, load_at_start)


def write(rows: list[dict[str, Any]], seconds: float, load_at_start: float) -> None:
    """After each server, so that who cannot wait for the last has the first."""
    settings = {
        "callers": CALLERS, "one_tenant": ONE_TENANT, "quantum": flood.QUANTUM,
        "warm_up_s": WARM_UP_S, "seconds": seconds, "kv_tokens": flood.KV_TOKENS,
        "load_at_start": load_at_start,
    }  # fmt: skip
    write_rows("one_engine", rows, sglang=sglang_version(), **settings)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
