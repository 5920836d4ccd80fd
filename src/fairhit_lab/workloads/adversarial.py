"""Workloads that search for the worst of a policy: each is the counter-example to a claim or its test."""

from collections.abc import Iterator
from random import Random

from fairhit_lab.traces import arrivals
from fairhit_lab.traces.parameters import Count, Natural, Positive
from fairhit_lab.traces.rows import Piece, merged, row
from fairhit_lab.traces.trace import TraceRow
from fairhit_lab.workloads.workload import preset


def _rows(
    client: str, requests: Iterator[tuple[float, list[Piece]]], output_len: int
) -> Iterator[TraceRow]:
    for n, (at_s, prompt) in enumerate(requests):
        yield row(f"{client}:{n}", client=client, at_s=at_s, prompt=prompt, output_len=output_len)


def flood(
    rng: Random,
    *,
    requests: Count = 200,
    shared: Natural = 768,
    own: Count = 128,
    output_len: Count = 64,
    light_rate: Positive = 0.5,
    light_len: Count = 256,
    duration: Positive = 120,
) -> Iterator[TraceRow]:
    """`heavy` sends everything at once, on one shared prefix; `light` sends a little all the time."""
    prefix = [("heavy:prefix", shared)] if shared else []
    heavy = ((0.0, [*prefix, (f"heavy:{n}", own)]) for n in range(requests))
    times = arrivals.until(arrivals.gamma(rng, per_s=light_rate), duration)
    light = ((at_s, [(f"light:{n}", light_len)]) for n, at_s in enumerate(times))
    return merged([_rows("heavy", heavy, output_len), _rows("light", light, output_len)])


def alternate(
    _: Random,
    *,
    long: Count = 2048,
    short: Count = 16,
    output_len: Count = 16,
    gap: Positive = 0.5,
    duration: Positive = 120,
) -> Iterator[TraceRow]:
    """f alternates long and short requests, g sends their mean: per-client round robin is unfair."""
    count = max(1, int(duration / gap))
    f = ((n * gap, [(f"f:{n}", short if n % 2 else long)]) for n in range(count))
    g = ((n * gap, [(f"g:{n}", (long + short) // 2)]) for n in range(count))
    return merged([_rows("f", f, output_len), _rows("g", g, output_len)])


def bursts(
    _: Random,
    *,
    burst: Count = 16_384,
    request: Count = 512,
    output_len: Count = 16,
    gap: Positive = 10,
    duration: Positive = 300,
) -> Iterator[TraceRow]:
    """f sends bursts worth `burst` input tokens of one prefix, g as much of many: Q^w is in D2LPM's bound."""
    each = max(1, burst // request)
    shared = request - max(1, request // 16)

    def f() -> Iterator[tuple[float, list[Piece]]]:
        for at in range(max(1, int(duration / gap))):
            for n in range(each):
                mine = (f"f:{at}:{n}", request - shared)
                yield at * gap, [(f"f:{at}", shared), mine] if shared else [mine]

    def g() -> Iterator[tuple[float, list[Piece]]]:
        for n in range(max(1, int(duration / gap)) * each):
            yield n * gap / each, [(f"g:{n}", request)]

    return merged([_rows("f", f(), output_len), _rows("g", g(), output_len)])


def overtake(
    _: Random,
    *,
    shared: Count = 1024,
    victim: Count = 1024,
    output_len: Count = 16,
    gap: Positive = 0.2,
    duration: Positive = 120,
) -> Iterator[TraceRow]:
    """f's request 1 matches nothing, all its later ones match: without ageing they overtake it for ever."""

    def f() -> Iterator[tuple[float, list[Piece]]]:
        yield 0.0, [("f:prefix", shared), ("f:0", 16)]
        yield 0.0, [("f:victim", victim)]
        for n in range(2, 2 + int(duration / gap)):
            yield (n - 2) * gap, [("f:prefix", shared), (f"f:{n}", 16)]

    g = (((n * gap), [(f"g:{n}", shared)]) for n in range(max(1, int(duration / gap))))
    return merged([_rows("f", f(), output_len), _rows("g", g, output_len)])


def split(
    _: Random,
    *,
    tokens: Count = 100,
    output_len: Count = 1,
    gap: Positive = 0.1,
    duration: Positive = 60,
) -> Iterator[TraceRow]:
    """f alternates a cached prompt and fresh ones, g sends fresh ones: f may wait on one replica only."""
    count = max(1, int(duration / gap))
    f = ((n * gap, [(f"f:{n}" if n % 2 else "f:cached", tokens)]) for n in range(count))
    g = ((n * gap, [(f"g:{n}", tokens)]) for n in range(count))
    return merged([_rows("f", f, output_len), _rows("g", g, output_len)])


def cached_prefix(
    _: Random,
    *,
    prefix: Natural = 30_000,
    own: Count = 1,
    output_len: Count = 200,
    chat_len: Count = 200,
    requests: Count = 3000,
) -> Iterator[TraceRow]:
    """Two tenants that always wait: `chat`, and one whose requests share a prefix; both have like outputs.

    With `prefix` 0 and `own` as `chat_len` the other is a clone of `chat`.
    """
    shared = [("long:prefix", prefix)] if prefix else []
    chat = ((0.0, [(f"chat:{n}", chat_len)]) for n in range(requests))
    long = ((0.0, [*shared, (f"long:{n}", own)]) for n in range(requests))
    return merged([_rows("chat", chat, output_len), _rows("long", long, output_len)])


ADVERSARIAL = {
    "cached-prefix": preset(
        cached_prefix,
        "a tenant that chats beside one with a long cached prefix",
        "what a token costs",
    ),
    "flood": preset(
        flood, "one client sends all at once, the other a little all the time", "two-tenant flood"
    ),
    "alternate": preset(alternate, "long and short in turns against their mean", "DLPM A.6"),
    "bursts": preset(
        bursts, "bursts of one prefix against the same tokens spread out", "DLPM A.5, Theorem 5.1"
    ),
    "overtake": preset(overtake, "a request that its own client's later ones overtake", "DLPM A.2"),
    "split": preset(
        split, "cached and fresh prompts in turns against fresh ones", "DLPM Theorem 5.1"
    ),
}
