"""The work and the duration of vLLM's forward passes, by client.

Integration points (vLLM 0.15 to 0.33): `SchedulerOutput.num_scheduled_tokens`, which `num_computed_tokens`
of each request includes when `schedule()` returns; `Request.num_prompt_tokens`. Each plan comes back in
`update_from_output`, in the order of planning; under async scheduling the next one is planned before that.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from fairhit.core.engine_time import PassWork
from fairhit.core.ledgers.client_table import OTHER
from fairhit.core.request import ClientId, Request, RequestId
from fairhit.engines.pass_meter import PassMeter

Works = dict[ClientId, PassWork]


def works_of(
    planned: Mapping[RequestId, int], requests: Mapping[RequestId, Any],
    live: Mapping[RequestId, Request],
) -> Works:  # fmt: skip
    """Return the work that each client has in a planned pass. O(requests in it).

    Tokens behind the whole prompt are those of a decoding sequence, draft tokens included, which reads its
    context once. So is what a preempted request computes again of its outputs in a pass of its own.
    """
    works: Works = {}
    for name, tokens in planned.items():
        request = requests[name]
        ours = live.get(name)
        client = OTHER if ours is None else ours.client
        if (work := works.get(client)) is None:
            work = works[client] = PassWork()
        before = request.num_computed_tokens - tokens
        if before < request.num_prompt_tokens:
            work.add_chunk(tokens, before)
        else:
            work.add_decode(before)
    return works


class StepTimes:
    """Measures each pass from its plan, or the end of the one before if that is later, to its output."""

    def __init__(
        self, meter: PassMeter, on_seconds: Callable[[ClientId, float], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:  # fmt: skip
        self._meter, self._on_seconds, self._clock = meter, on_seconds, clock
        self._in_flight: deque[tuple[Any, float, Works]] = deque()
        self._ended_s = 0.0

    def planned(self, output: Any, works: Works) -> None:
        """Note what a pass computes, which begins now. O(1)."""
        if works:
            self._in_flight.append((output, self._clock(), works))

    def ended(self, output: Any) -> None:
        """Divide the duration of a pass whose output is there among its clients. O(clients in it)."""
        now_s = self._clock()
        # Passes before this one have no output: an engine that recovered from an error dropped them.
        while self._in_flight:
            plan, started_s, works = self._in_flight.popleft()
            if plan is output:
                seconds = now_s - max(started_s, self._ended_s)
                for client, part in self._meter.observe(works, seconds).items():
                    self._on_seconds(client, part)
                break
        self._ended_s = now_s
