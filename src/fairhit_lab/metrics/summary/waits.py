"""Waits of requests and durations of programs, unfinished ones included when a run is cut short.

Who starves has no first token or end to be counted, so the times of the few served look short.
"""

from collections.abc import Callable
from typing import Any

from fairhit.core.request import ClientId, RequestId
from fairhit_lab.events import Cancel, Event, Finish, FirstToken, Reject
from fairhit_lab.metrics.distribution import Distribution
from fairhit_lab.metrics.summary.latency import Programs, latency


class Waits:
    """An observer. 200 bytes a request that has no first token yet, 150 a program."""

    def __init__(self) -> None:
        self._waiting: dict[RequestId, tuple[ClientId, int]] = {}
        self._waited: dict[ClientId, Distribution] = {}
        self._programs = Programs()
        self._part_of: dict[RequestId, int] = {}
        self._given_up: set[int] = set()
        self._on: dict[type, Callable[[Any], None]] = {
            FirstToken: self._first_token,
            Finish: self._finish,
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
        self._waiting[request] = client, t_us
        if program is not None:
            self._part_of[request] = self._programs.start(program, client, t_us)

    def until(self, end_us: int) -> dict[ClientId, dict[str, float | int | None]]:
        """By client, in seconds, as a summary's `ttft`; the run is over. O(requests that wait)."""
        for client, start_us in self._waiting.values():
            self._of(client).add(end_us - start_us)
        self._waiting.clear()
        return {client: latency(waited) for client, waited in self._waited.items()}

    def programs_until(self, end_us: int) -> dict[ClientId, dict[str, float | int | None]]:
        """By client, in seconds: from start to end, or to the run's. O(programs).

        One of which a request was rejected or cancelled will never end, and is left out.
        """
        lasted = self._programs.completions(end_us, self._given_up)
        return {client: latency(times) for client, times in lasted.items()}

    def _first_token(self, event: FirstToken) -> None:
        # Served a second time, after its worker failed, it has had its first token.
        if (waiting := self._waiting.pop(event.request, None)) is not None:
            client, start_us = waiting
            self._of(client).add(event.t_us - start_us)

    def _gone(self, event: Cancel | Reject) -> None:
        self._waiting.pop(event.request, None)
        if (program := self._part_of.pop(event.request, None)) is not None:
            self._given_up.add(program)

    def _finish(self, event: Finish) -> None:
        if (program := self._part_of.pop(event.request, None)) is not None:
            self._programs.finish(program, event.t_us)

    def _of(self, client: ClientId) -> Distribution:
        return self._waited.setdefault(client, Distribution())
