"""The synthetic workloads of the VTC paper (arXiv:2401.00588), as its artifact runs them.

Only lengths matter there: that server has no prefix cache. So no two prompts share a token here.
Rates are requests a minute, as in the paper; lengths are tokens.
"""

from collections.abc import Iterable, Iterator
from random import Random

from fairhit_lab.traces import arrivals
from fairhit_lab.traces.parameters import Amount, Count, Counts, Positive, Positives, of
from fairhit_lab.traces.rows import merged, row, streams_of
from fairhit_lab.traces.trace import TraceRow
from fairhit_lab.workloads.workload import Workload, preset

MINUTE_S = 60


def _client(
    number: int, times: Iterable[float], input_len: int, output_len: int, weight: int | None = None
) -> Iterator[TraceRow]:
    client = f"c{number}"
    for n, at_s in enumerate(times):
        name = f"{client}:{n}"
        prompt = [(name, input_len)]
        yield row(
            name, client=client, at_s=at_s, prompt=prompt, output_len=output_len, weight=weight
        )


def uniform(
    rng: Random,
    *,
    rates: Positives = (90, 180),
    input_len: Counts = (256,),
    output_len: Counts = (256,),
    duration: Positive = 600,
    on_off: Amount = 0,
    weights: Counts = (1,),
) -> Iterator[TraceRow]:
    """Evenly spaced requests of each client; client 0 pauses in every other `on_off` seconds (0: never)."""

    def client(number: int, own: Random) -> Iterator[TraceRow]:
        per_s = of(rates, number) / MINUTE_S
        times = arrivals.evenly(own, per_s=per_s, count=int(per_s * duration + 1e-9))
        if number == 0 and on_off:
            times = arrivals.on_off(times, period_s=on_off)
        weight = None if weights == (1,) else of(weights, number) * 1_000_000
        return _client(number, times, of(input_len, number), of(output_len, number), weight)

    return merged(client(number, own) for number, own in enumerate(streams_of(rng, len(rates))))


def poisson(
    rng: Random,
    *,
    rates: Positives = (480, 90),
    input_len: Counts = (64, 256),
    output_len: Counts = (64, 256),
    duration: Positive = 600,
    cv: Positive = 1,
) -> Iterator[TraceRow]:
    """A stream of all requests, Poisson at cv=1; each belongs to a client in proportion to the rates."""
    per_s = sum(rates) / MINUTE_S
    times = arrivals.gamma(rng, per_s=per_s, cv=cv)
    clients = range(len(rates))
    for n, at_s in zip(range(int(per_s * duration + 1e-9)), times, strict=False):
        number = rng.choices(clients, rates)[0]
        name = f"c{number}:{n}"
        yield row(
            name,
            client=f"c{number}",
            at_s=at_s,
            prompt=[(name, of(input_len, number))],
            output_len=of(output_len, number),
        )


def increase(
    _: Random,
    *,
    rate: Positive = 30,
    from_rate: Positive = 12,
    to_rate: Positive = 120,
    duration: Positive = 600,
    input_len: Count = 256,
    output_len: Count = 256,
) -> Iterator[TraceRow]:
    """Client 0 at a fixed rate, client 1 at one that rises with time; nothing is random."""
    per_s = rate / MINUTE_S
    fixed = ((n + 1) / per_s for n in range(int(per_s * duration + 1e-9)))
    rising = arrivals.rising(
        from_per_s=from_rate / MINUTE_S, to_per_s=to_rate / MINUTE_S, duration_s=duration
    )
    both = enumerate((fixed, rising))
    return merged(_client(number, times, input_len, output_len) for number, times in both)


# Rates of both clients in each third of the time; in the first, client 0 is on and off.
PHASES = ((30, 120), (60, 60), (30, 90))


def dist_shift(
    rng: Random,
    *,
    duration: Positive = 900,
    on_off: Positive = 60,
    input_len: Count = 256,
    output_len: Count = 256,
) -> Iterator[TraceRow]:
    """Three phases: client 0 on and off below its share, both at an equal rate, client 0 below its share."""
    part_s = duration / len(PHASES)

    def times(number: int, own: Random) -> Iterator[float]:
        for phase, rates in enumerate(PHASES):
            per_s = rates[number] / MINUTE_S
            count = int(per_s * part_s + 1e-9)
            due = arrivals.evenly(own, per_s=per_s, count=count, start_s=phase * part_s)
            yield from arrivals.on_off(due, period_s=on_off) if phase + number == 0 else due

    def client(number: int, own: Random) -> Iterator[TraceRow]:
        # The last request of a phase may be later than the first one of the next.
        return _client(number, sorted(times(number, own)), input_len, output_len)

    return merged(client(number, own) for number, own in enumerate(streams_of(rng, 2)))


def _suite(summary: str, source: str, **defaults: object) -> Workload:
    return preset(uniform, summary, f"VTC {source}", **defaults)


def _thirteen_b(figure: str, pool: str, tokens: int, rates: tuple[int, int]) -> Workload:
    return _suite(
        f"two clients over capacity, {tokens}/{tokens}, for Llama-2-13B with a pool of {pool}",
        figure,
        rates=rates,
        input_len=(tokens,),
        output_len=(tokens,),
    )


VTC = {
    "uniform": _suite("evenly spaced requests, one rate a client", "section 5.2"),
    "overload": _suite("two clients over capacity", "Fig. 3, 19, Table 5", duration=360),
    "proportional": _suite("two clients below their share, one above", "Fig. 4", rates=(15, 30, 90)),
    "on_off_less": _suite("client 0 on and off, below its share", "Fig. 5", rates=(30, 120), on_off=60),
    "on_off_overload": _suite("client 0 on and off, above its share", "Fig. 6", rates=(120, 180), on_off=60),
    "poisson": preset(poisson, "one Poisson stream, clients drawn by their rates", "VTC section 5.2"),
    "poisson_short_long": preset(poisson, "many short requests against few long ones", "VTC Fig. 7"),
    # The figure's caption has 64 where the artifact and its shipped rows have 32.
    "poisson_short_long_2": preset(
        poisson, "long inputs against long outputs", "VTC Fig. 8", input_len=(512, 32), output_len=(32, 512)
    ),
    "increase": preset(increase, "client 1 rises past its share", "VTC Fig. 9"),
    "dist_shift": preset(dist_shift, "the load changes its shape twice", "VTC Fig. 10"),
    "overload-s4-35000-256": _thirteen_b("Fig. 15", "35,000", 256, (180, 360)),
    "overload-s4-35000-512": _thirteen_b("Fig. 15b", "35,000", 512, (90, 180)),
    "overload-s4-35000-768": _thirteen_b("Fig. 15b", "35,000", 768, (60, 120)),
    "overload-s4": _thirteen_b("Fig. 15a", "65,000", 256, (240, 480)),
    "overload-s4-long": _thirteen_b("Fig. 15a", "65,000", 512, (120, 240)),
    "overload-weighted": _suite(
        "four clients with weights 1:2:3:4",
        "Fig. 16",
        rates=(24, 48, 72, 96),
        weights=(1, 2, 3, 4),
        duration=360,
    ),
    "overload-weighted-plain": _suite(
        "four clients over capacity, equal weights", "Fig. 16", rates=(48, 48, 72, 96), duration=360
    ),
    "overload-multi": _suite(
        "eight clients over capacity",
        "Fig. 19, Table 6",
        rates=(24, 24, 24, 36, 36, 36, 36, 36),
        duration=360,
    ),
}  # fmt: skip
