"""Service of each client over time, as tidy rows for figures: an observer with short bins.

Service counts when it is given: input at admission, output as each pass ends. (The VTC artifact spreads
a request's service from its first token to its last instead: metrics/vtc_table.py.)
"""

from array import array
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any, NamedTuple

from fairhit.core.request import ClientId, RequestId
from fairhit_lab.events import (
    Admit,
    Cancel,
    Decode,
    Dispatch,
    Event,
    Finish,
    FirstToken,
    Reject,
)
from fairhit_lab.metrics.gaps import OUTPUT_WEIGHT
from fairhit_lab.metrics.summary.active import ended_by

# The papers' figures: 30 s to each side.
WINDOW_US = 60 * 10**6


class SeriesPoint(NamedTuple):
    """A row: `value` of `metric` for `client` at `time_s`; None where the metric is undefined."""

    time_s: float
    client: ClientId
    metric: str
    value: float | None


# What a bin counts: tokens of service in both views, arrivals; first tokens and how long they took.
KINDS = ("system", "client", "requests", "firsts", "first_us")


class Series:
    """Counts events into bins of `bin_us`; `rows` makes windows of them. 40 bytes a client and bin."""

    def __init__(self, *, bin_us: int = 10**6) -> None:
        assert bin_us > 0, bin_us
        self._bin_us = bin_us
        self._bins: dict[ClientId, dict[str, array[int]]] = {}
        self._starts: dict[RequestId, int] = {}
        self._last_us = 0
        self._on: dict[type, Callable[[Any], None]] = {
            Dispatch: self._dispatch,
            Admit: self._admit,
            Decode: self._decode,
            FirstToken: self._first_token,
            Finish: self._gone,
            Cancel: self._gone,
            Reject: self._gone,
        }

    def __call__(self, event: Event, /) -> None:
        if (book := self._on.get(type(event))) is not None:
            book(event)

    def start(
        self, request: RequestId, client: ClientId, t_us: int, program: str | None = None
    ) -> None:
        """Record the start of a request, before its dispatch (see `Summary.start`). O(1)."""
        self._starts[request] = t_us
        self._book(client, t_us, "requests", 1)

    def rows(
        self, *, window_us: int = WINDOW_US, every_us: int | None = None
    ) -> Iterator[SeriesPoint]:
        """At every `every_us` (half a window) what lies in the window around it, by client.

        service_system, service_client: tokens/s, over the whole window at the edges, too; requests:
        arrivals/s; response_time: mean seconds to the first tokens that lie in it, None if none does.
        Windows are made of whole bins.
        """
        half = max(1, window_us // 2 // self._bin_us)
        step = max(1, (every_us or window_us // 2) // self._bin_us)
        sums = {
            client: {kind: [0, *accumulate(bins[kind])] for kind in KINDS}
            for client, bins in self._bins.items()
        }
        for middle in range(0, self._last_us // self._bin_us + 1, step):
            for client, of in sums.items():
                within = {kind: _between(of[kind], middle - half, middle + half) for kind in KINDS}
                yield from self._points(middle, client, within, 2 * half)

    def _points(
        self, middle: int, client: ClientId, within: dict[str, int], bins: int
    ) -> Iterator[SeriesPoint]:
        at_s, long_s = middle * self._bin_us / 10**6, bins * self._bin_us / 10**6
        firsts = within["firsts"]
        response = within["first_us"] / firsts / 10**6 if firsts else None
        yield SeriesPoint(at_s, client, "service_system", within["system"] / long_s)
        yield SeriesPoint(at_s, client, "service_client", within["client"] / long_s)
        yield SeriesPoint(at_s, client, "requests", within["requests"] / long_s)
        yield SeriesPoint(at_s, client, "response_time", response)

    def _book(self, client: ClientId, t_us: int, kind: str, amount: int) -> None:
        bins = self._bins.get(client)
        if bins is None:
            self._bins[client] = bins = {name: array("q") for name in KINDS}
        row, place = bins[kind], t_us // self._bin_us
        if len(row) <= place:
            row.extend([0] * (place + 1 - len(row)))
        row[place] += amount
        self._last_us = max(self._last_us, t_us)

    def _dispatch(self, event: Dispatch) -> None:
        if event.request not in self._starts:
            self.start(event.request, event.client, event.t_us)

    def _admit(self, event: Admit) -> None:
        if not event.again:
            self._book(event.client, event.t_us, "system", event.extend_len)
            self._book(event.client, event.t_us, "client", event.input_len)

    def _decode(self, event: Decode) -> None:
        """O(clients that ran * bins the run crosses * log passes)."""
        begin = 0
        while begin < event.passes:
            end_us = event.end_us(begin)
            end = ended_by(event, (end_us // self._bin_us + 1) * self._bin_us - 1, begin)
            for client, count in event.counts.items():
                for kind in ("system", "client"):
                    self._book(client, end_us, kind, OUTPUT_WEIGHT * count * (end - begin))
            begin = end

    def _first_token(self, event: FirstToken) -> None:
        self._book(event.client, event.t_us, "firsts", 1)
        self._book(event.client, event.t_us, "first_us", event.t_us - self._starts[event.request])

    def _gone(self, event: Finish | Cancel | Reject) -> None:
        self._starts.pop(event.request, None)


def _between(sums: list[int], begin: int, end: int) -> int:
    """The sum of bins begin .. end - 1, those outside being empty."""
    last = len(sums) - 1
    return sums[min(max(end, 0), last)] - sums[min(max(begin, 0), last)]
