"""Rows made from seconds and (segment, length) pairs, and streams of them brought into one order."""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Any, TypeAlias

from fairhit.core.cache.token_runs import Runs
from fairhit_lab.traces.trace import TraceRow

# Of a prompt: the first `length` tokens of a segment.
Piece: TypeAlias = tuple[str, int]


def row(
    identity: str,
    *,
    client: str,
    at_s: float,
    prompt: Iterable[Piece],
    output_len: int,
    output: Sequence[Piece] | None = None,
    **more: Any,
) -> TraceRow:
    """Make a row; `max_tokens` is the output's length by default."""
    more.setdefault("max_tokens", output_len)
    return TraceRow(
        id=identity,
        client=client,
        arrival_us=round(at_s * 1_000_000),
        prompt=runs(prompt),
        output_len=output_len,
        output=None if output is None else runs(output),
        **more,
    )


def runs(pieces: Iterable[Piece]) -> Runs:
    """The pieces one behind the other."""
    return Runs((segment, 0, length) for segment, length in pieces)


def merged(streams: Iterable[Iterable[TraceRow]]) -> Iterator[TraceRow]:
    """Sorted streams as one; at one instant the earlier stream goes first. O(log streams) a row."""
    return heapq.merge(*streams, key=lambda row: row.arrival_us)


def in_order(programs: Iterable[tuple[float, Sequence[TraceRow]]]) -> Iterator[TraceRow]:
    """Rows of programs by arrival; programs come by start, in seconds, and no row is before its start.

    Ties keep the order of programs and, inside one, of its rows. Holds only programs under way.
    """
    waiting: list[tuple[int, int, TraceRow]] = []
    serial = 0
    for start_s, program in programs:
        start_us = round(start_s * 1_000_000)
        while waiting and waiting[0][0] < start_us:
            yield heapq.heappop(waiting)[2]
        for one in program:
            assert one.arrival_us >= start_us, one
            heapq.heappush(waiting, (one.arrival_us, serial, one))
            serial += 1
    while waiting:
        yield heapq.heappop(waiting)[2]


def streams_of(rng: Random, count: int) -> list[Random]:
    """A generator for each client, so that no client's draws change another's."""
    return [Random(rng.getrandbits(64)) for _ in range(count)]
