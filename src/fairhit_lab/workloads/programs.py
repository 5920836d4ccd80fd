"""Programs: requests with dependencies, started by a client at Gamma distributed times."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from random import Random

from fairhit_lab.traces import arrivals
from fairhit_lab.traces.parameters import Positives, of
from fairhit_lab.traces.rows import in_order, merged, streams_of
from fairhit_lab.traces.trace import TraceRow

# The requests of one program, given its client's number, its own number, its start and the generator.
Builder = Callable[[int, int, float, Random], Sequence[TraceRow]]


def starts(
    rng: Random, *, per_s: float, cv: float, duration_s: float, count: int
) -> Iterable[float]:
    """When a client's programs start: the first `count`, or with 0 those within the duration."""
    times = arrivals.gamma(rng, per_s=per_s, cv=cv)
    return islice(times, count) if count else arrivals.until(times, duration_s)


def steady(
    rng: Random,
    build: Builder,
    *,
    clients: int,
    rates: Positives,
    duration: float,
    programs_each: int = 0,
    cv: float = 1,
) -> Iterator[TraceRow]:
    """Programs of every client at a mean rate of its own, a second; `starts` says how many."""

    def times(number: int, own: Random) -> Iterable[float]:
        rate = of(rates, number)
        return starts(own, per_s=rate, cv=cv, duration_s=duration, count=programs_each)

    return programs(rng, build, clients=clients, times=times)


def programs(
    rng: Random, build: Builder, *, clients: int, times: Callable[[int, Random], Iterable[float]]
) -> Iterator[TraceRow]:
    """The requests of every client's programs, by arrival; `times` are a client's starts in seconds."""

    def client(number: int, own: Random) -> Iterator[TraceRow]:
        return in_order(
            (start_s, build(number, n, start_s, own))
            for n, start_s in enumerate(times(number, own))
        )

    return merged(client(number, own) for number, own in enumerate(streams_of(rng, clients)))
