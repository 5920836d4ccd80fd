"""When tenants were backlogged, and how far the service they got meanwhile came apart.

Input is what callers saw (`Served`); service is the system view, extend + 2 * output tokens.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from fairhit.local.demo.closed_loop import Served

# [begin, end) in microseconds, disjoint and in order.
Intervals: TypeAlias = list[tuple[int, int]]

OUTPUT_WEIGHT = 2  # w_q of DESIGN 2; w_e is 1


def union(intervals: Iterable[tuple[int, int]]) -> Intervals:
    """The same instants as disjoint intervals in order."""
    merged: Intervals = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        elif begin < end:
            merged.append((begin, end))
    return merged


def both(left: Intervals, right: Intervals) -> Intervals:
    """The instants that are in both."""
    found = [
        (max(begin, other_begin), min(end, other_end))
        for begin, end in left
        for other_begin, other_end in right
    ]
    return union((begin, end) for begin, end in found if begin < end)


def stretches(intervals: Intervals, *, at_least_us: int) -> Intervals:
    """Those that last.

    Who is backlogged only for moments receives much of its service between them, where it does not
    count: short intervals say that it got less than it did.
    """
    return [(begin, end) for begin, end in intervals if end - begin >= at_least_us]


def length_us(intervals: Intervals) -> int:
    """How long they are together."""
    return sum(end - begin for begin, end in intervals)


def backlogged(records: Iterable[Served], tenant: str, engine: str) -> Intervals:
    """When `tenant` had a request at `engine` that had not begun to be answered."""
    return union(
        (record.sent_us, record.first_us)
        for record in records
        if record.tenant == tenant and record.engine == engine
    )


def service_steps(records: Iterable[Served], tenant: str) -> list[tuple[int, int]]:
    """(when, tokens of service): the extend with the first piece, the outputs as they came."""
    steps = []
    for record in records:
        if record.tenant != tenant:
            continue
        steps.append((record.first_us, record.prompt_len - record.cached_len))
        # The first piece opens the answer and the last one carries the usage: neither is a token.
        pieces = record.pieces_us[1:-1] or record.pieces_us[:1]
        for number, when in enumerate(pieces, 1):
            # Several tokens may share a piece: spread them evenly, nothing lost to rounding.
            share = record.output_len * number // len(pieces)
            before = record.output_len * (number - 1) // len(pieces)
            steps.append((when, OUTPUT_WEIGHT * (share - before)))
    return sorted(steps)


def service_within(steps: Iterable[tuple[int, int]], within: Intervals) -> int:
    """The service received in these intervals."""
    return sum(
        service for when, service in steps if any(begin <= when < end for begin, end in within)
    )


def largest_gap(records: Sequence[Served], tenants: tuple[str, str], within: Intervals) -> int:
    """The most by which the two tenants' service differs over any part of any of the intervals.

    That is the highest less the lowest value that the running difference takes in an interval.
    """
    first, second = tenants
    changes = sorted(
        [(when, service) for when, service in service_steps(records, first)]
        + [(when, -service) for when, service in service_steps(records, second)]
    )
    widest = 0
    for begin, end in within:
        difference = lowest = highest = 0
        for when, change in changes:
            if begin <= when < end:
                difference += change
                lowest, highest = min(lowest, difference), max(highest, difference)
        widest = max(widest, highest - lowest)
    return widest
