"""Intervals in which tenants were backlogged, and the gap between their service in these intervals.

Computed from callers' records (`Served`); service is the system view, extend + 2 * output tokens.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from fairhit.local.demo.closed_loop import Served

# [begin, end) in microseconds, disjoint and in order.
Intervals: TypeAlias = list[tuple[int, int]]

OUTPUT_WEIGHT = 2  # w_q; w_e is 1


def union(intervals: Iterable[tuple[int, int]]) -> Intervals:
    """Return the same instants as disjoint intervals in order."""
    merged: Intervals = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        elif begin < end:
            merged.append((begin, end))
    return merged


def both(left: Intervals, right: Intervals) -> Intervals:
    """Return the instants that are in both."""
    found = [
        (max(begin, other_begin), min(end, other_end))
        for begin, end in left
        for other_begin, other_end in right
    ]
    return union((begin, end) for begin, end in found if begin < end)


def lasting(intervals: Intervals, *, at_least_us: int) -> Intervals:
    """Return the intervals of at least `at_least_us`.

    A tenant that is backlogged only for moments receives much of its service between them, where it does not
    count: with short intervals its service would be underestimated.
    """
    return [(begin, end) for begin, end in intervals if end - begin >= at_least_us]


def length_us(intervals: Intervals) -> int:
    """Return the sum of the lengths of intervals."""
    return sum(end - begin for begin, end in intervals)


def backlogged(records: Iterable[Served], tenant: str, engine: str) -> Intervals:
    """Return when `tenant` had a request at `engine` that had no first token yet."""
    return union(
        (record.sent_us, record.first_us)
        for record in records
        if record.tenant == tenant and record.engine == engine
    )


def service_steps(records: Iterable[Served], tenant: str) -> list[tuple[int, int]]:
    """Return (time, tokens of service): extend tokens at the first chunk, output tokens as they arrived."""
    steps = []
    for record in records:
        if record.tenant != tenant:
            continue
        steps.append((record.first_us, record.prompt_len - record.cached_len))
        # The first chunk opens the answer and the last one has the usage: neither is a token.
        pieces = record.pieces_us[1:-1] or record.pieces_us[:1]
        for number, when in enumerate(pieces, 1):
            # A chunk may have several tokens: spread them evenly, without loss to rounding.
            share = record.output_len * number // len(pieces)
            before = record.output_len * (number - 1) // len(pieces)
            steps.append((when, OUTPUT_WEIGHT * (share - before)))
    return sorted(steps)


def service_within(steps: Iterable[tuple[int, int]], within: Intervals) -> int:
    """Return the service received in these intervals."""
    return sum(
        service for when, service in steps if any(begin <= when < end for begin, end in within)
    )


def largest_gap(records: Sequence[Served], tenants: tuple[str, str], within: Intervals) -> int:
    """Return the largest difference between two tenants' service over any part of any interval.

    Equal to the highest less the lowest value that the running difference takes in an interval.
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
