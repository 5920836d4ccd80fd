"""The two-tenant flood: a tenant with 60 callers beside one with 16, on real engines, policy by policy.

The prompts of each tenant share prefixes, and the prefixes of both together do not fit into one engine's
cache. So the tenant that is served more also keeps the cache warm.
"""

import asyncio
import inspect
import json
import random
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import asdict, dataclass

from fairhit.errors import EngineFailed
from fairhit.gateway import settings
from fairhit.local import engine_process as local
from fairhit.local import serve
from fairhit.local.demo import backlog
from fairhit.local.demo.closed_loop import ClosedLoop, Served, Tenant, now_us
from fairhit.local.supervision import Notify
from fairhit.policies import SCHEDULERS
from fairhit.settings.declaration import settings_of

# Scheduler in the engines, router in the gateway.
POLICIES = (
    ("fcfs", "round-robin"),
    ("vtc", "least-loaded"),
    ("lpm", "least-loaded"),
    ("dlpm", "d2lpm"),
    ("fair", "d2lpm"),
)
HEAVY, LIGHT = "heavy", "light"
CALLERS = {HEAVY: 60, LIGHT: 16}
# Prefixes per tenant; 12 of 384 tokens are more than the 4,096 tokens one engine can hold.
PREFIXES = {HEAVY: 8, LIGHT: 4}
PREFIX_WORDS, QUESTION_WORDS, OUTPUT_TOKENS = 384, 40, 16
KV_TOKENS = 4096  # of the demo engine: 128 blocks of 32
QUANTUM, WORKER_QUANTUM = 512, 1024  # the first under dlpm; fair has its default
STREAM_INTERVAL = 8  # tokens per chunk of the stream
WARM_UP_S = 6
MIN_INTERVAL_US = 1_000_000
# Frequent in the demo tokenizer's text, so that a word is about one token.
TEXT = """
the a of in is to and object class method name value type list module function if for this be as an are
by not or with string attribute called defined number from it that can exception used
"""
WORDS = TEXT.split()

Advance = Callable[[float], None]


@dataclass(frozen=True, kw_only=True)
class DemoSetting:
    """A flag that differs from its default here, and the reason."""

    flag: str
    value: int | str
    default: int | str
    why: str


# All flags that differ from the defaults of `fairhit serve`.
SETTINGS = (
    DemoSetting(
        flag="--queue",
        value="engine",
        default=settings_of(settings.GatewaySettings)["queue"].default,
        why="what is compared are the policies of the engines",
    ),
    DemoSetting(
        flag="--quantum",
        value=QUANTUM,
        default=inspect.signature(SCHEDULERS["dlpm"]).parameters["quantum"].default,
        why="4,096 tokens are seconds of such an engine: too few refills to compare",
    ),
    DemoSetting(
        flag="--worker-quantum",
        value=WORKER_QUANTUM,
        default=settings_of(settings.GatewaySettings)["worker_quantum"].default,
        why="a request costs about 100: with 16,384 light would be at one engine only",
    ),
    DemoSetting(
        flag="--engine-args=--stream-interval",
        value=STREAM_INTERVAL,
        default=1,  # vLLM's
        why="what is measured is an engine's scheduling, not its writing of events",
    ),
)


@dataclass(frozen=True, kw_only=True)
class TenantResult:
    """The service of a tenant in the measured time; latencies in milliseconds, service in tokens."""

    requests_per_s: float
    latency_ms_p50: float
    latency_ms_p95: float
    first_token_ms_p50: float
    service: int
    service_both_backlogged: int
    hit_rate: float


@dataclass(frozen=True, kw_only=True)
class PolicyResult:
    """The result of a policy. Gaps and bounds are in tokens of service, system view.

    Both backlogged: at an engine, for a second or more. `backlogged_s` is the shorter of the engines'
    times; `service_ratio` compares the tenants' service in those intervals, over all engines;
    `gap` is the largest while both were backlogged at every engine.
    """

    scheduler: str
    router: str
    seconds: float
    tenants: dict[str, TenantResult]
    requests_per_s: float
    hit_rate: float
    backlogged_s: float
    service_ratio: float | None  # None when one of them got nothing
    gap_per_engine: dict[str, int]
    bound_per_engine: int
    gap: int
    bound: int
    failures: int


def bodies(tenant: str, seed: int) -> Callable[[int], Iterator[bytes]]:
    """Return the requests of a tenant's callers: one of its long system prompts and a new question each."""
    rng = random.Random(f"{seed} {tenant}")
    prefixes = [" ".join(rng.choices(WORDS, k=PREFIX_WORDS)) for _ in range(PREFIXES[tenant])]

    def ask(caller: int) -> Iterator[bytes]:
        own = random.Random(f"{seed} {tenant} {caller}")
        while True:
            question = " ".join(own.choices(WORDS, k=QUESTION_WORDS))
            request = {
                "model": local.DEMO,
                "messages": [
                    {"role": "system", "content": own.choice(prefixes)},
                    {"role": "user", "content": question},
                ],
                "max_tokens": OUTPUT_TOKENS,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            yield json.dumps(request).encode()

    return ask


def tenants(seed: int) -> tuple[Tenant, ...]:
    """Return both tenants, with keys that the gateway knows."""
    return tuple(
        Tenant(name=name, key=f"key-of-{name}", callers=callers, bodies=bodies(name, seed))
        for name, callers in CALLERS.items()
    )


def options(scheduler: str, router: str) -> serve.ServeOptions:
    """Return the options of a service with two demo engines and this policy."""
    values = {
        "port": 0,
        "policy": router,
        "queue": "engine",
        "worker_quantum": WORKER_QUANTUM,
        "tenant_api_key": [f"{name}:key-of-{name}" for name in CALLERS],
    }
    return serve.ServeOptions(
        gateway=settings.make(values, where="two tenants"),
        scheduler=scheduler,
        quantum=QUANTUM if scheduler == "dlpm" else None,
        engine_arguments=("--stream-interval", str(STREAM_INTERVAL)),
    )


async def run_policy(
    scheduler: str, router: str, *, seconds: float, seed: int, notify: Notify, advance: Advance
) -> PolicyResult:
    """Start the service, flood it, and return the result of each tenant. Raises EngineFailed."""
    wanted = options(scheduler, router)
    async with serve.running(wanted, notify) as service:
        loop = ClosedLoop(host=service.host, port=service.port, tenants=tenants(seed))
        begin_us = now_us() + WARM_UP_S * 1_000_000
        notify(
            "load", f"{scheduler} + {router}, {WARM_UP_S} s to warm up, {seconds:.0f} s measured"
        )
        await _with_progress(loop.run(WARM_UP_S + seconds), WARM_UP_S + seconds, advance)
        notify("load", "done")
    window = (begin_us, begin_us + round(seconds * 1_000_000))
    if not loop.records:
        raise EngineFailed(f"no request was answered: {'; '.join(loop.failures[:1])}")
    return summarize(scheduler, router, loop.records, window, failures=len(loop.failures))


async def _with_progress(
    work: Coroutine[None, None, None], seconds: float, advance: Advance
) -> None:
    """Await `work`, and report once a second which share of the time has passed."""
    task = asyncio.ensure_future(work)
    began_us = now_us()
    try:
        while not task.done():
            await asyncio.wait([task], timeout=1)
            advance(min(1.0, (now_us() - began_us) / 1e6 / seconds))
        await task
    finally:
        task.cancel()


def summarize(
    scheduler: str, router: str, records: list[Served], window: tuple[int, int], *, failures: int
) -> PolicyResult:
    """Return the result of a run. Pure."""
    engines = sorted({record.engine for record in records})
    pair = (HEAVY, LIGHT)
    together = {engine: _both_backlogged(records, engine, window) for engine in engines}
    everywhere: backlog.Intervals = [window]
    for intervals in together.values():
        everywhere = backlog.both(everywhere, intervals)
    results = {name: _tenant(records, name, window, together) for name in pair}
    in_window = [record for record in records if window[0] <= record.done_us < window[1]]
    largest_prompt = max(record.prompt_len for record in records)
    bound = 2 * (largest_prompt + backlog.OUTPUT_WEIGHT * KV_TOKENS + QUANTUM)
    most = max(result.service_both_backlogged for result in results.values())
    least = min(result.service_both_backlogged for result in results.values())
    return PolicyResult(
        scheduler=scheduler,
        router=router,
        seconds=(window[1] - window[0]) / 1e6,
        tenants=results,
        requests_per_s=len(in_window) * 1e6 / (window[1] - window[0]),
        hit_rate=_hit_rate(in_window),
        backlogged_s=min(map(backlog.length_us, together.values())) / 1e6,
        service_ratio=most / least if least else None,
        gap_per_engine={
            engine: backlog.largest_gap(
                [record for record in records if record.engine == engine], pair, intervals
            )
            for engine, intervals in together.items()
        },
        bound_per_engine=bound,
        gap=backlog.largest_gap(records, pair, everywhere),
        bound=bound * len(engines),
        failures=failures,
    )


def _both_backlogged(
    records: list[Served], engine: str, window: tuple[int, int]
) -> backlog.Intervals:
    heavy = backlog.backlogged(records, HEAVY, engine)
    light = backlog.backlogged(records, LIGHT, engine)
    together = backlog.both(backlog.both(heavy, light), [window])
    return backlog.lasting(together, at_least_us=MIN_INTERVAL_US)


def _tenant(
    records: list[Served],
    name: str,
    window: tuple[int, int],
    together: dict[str, backlog.Intervals],
) -> TenantResult:
    own = [record for record in records if record.tenant == name]
    done = [record for record in own if window[0] <= record.done_us < window[1]]
    # All in flight: a request that is starved throughout counts with all its waiting.
    known = [record for record in own if record.sent_us < window[1] and window[0] <= record.done_us]
    steps = backlog.service_steps(own, name)
    return TenantResult(
        requests_per_s=len(done) * 1e6 / (window[1] - window[0]),
        latency_ms_p50=_percentile([r.done_us - r.sent_us for r in known], 50) / 1e3,
        latency_ms_p95=_percentile([r.done_us - r.sent_us for r in known], 95) / 1e3,
        first_token_ms_p50=_percentile([r.first_us - r.sent_us for r in known], 50) / 1e3,
        service=backlog.service_within(steps, [window]),
        service_both_backlogged=sum(
            backlog.service_within(
                backlog.service_steps([r for r in own if r.engine == engine], name), intervals
            )
            for engine, intervals in together.items()
        ),
        hit_rate=_hit_rate(done),
    )


def _hit_rate(records: list[Served]) -> float:
    prompt_len = sum(record.prompt_len for record in records)
    return sum(record.cached_len for record in records) / prompt_len if prompt_len else 0.0


def _percentile(values: list[int], percent: int) -> float:
    """Nearest rank; NaN-free: 0 when nothing was measured."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def as_rows(results: list[PolicyResult]) -> list[dict[str, object]]:
    """Return plain values, for JSON."""
    return [asdict(result) for result in results]


def conditions(*, seconds: int, seed: int) -> dict[str, object]:
    """Return the settings of a run, without machine and versions: plain values, for JSON."""
    return {
        "seed": seed,
        "seconds": seconds,
        "warm_up_s": WARM_UP_S,
        "callers": CALLERS,
        "prefixes": PREFIXES,
        "prompt_words": {"prefix": PREFIX_WORDS, "question": QUESTION_WORDS},
        "output_tokens": OUTPUT_TOKENS,
        "settings": [asdict(setting) for setting in SETTINGS],
        "demo_engine": " ".join(local.DEMO_FLAGS),
    }
