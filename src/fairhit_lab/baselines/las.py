"""Least attained service (LAS) with a half-life: llm-d's `program-aware-fairness`, strategy `las`.

    s_i     service of client i, prompt + 2 outputs of each finished request; halved every half-life
    w_i     wait of its oldest request
    score   0.8 (1 - s_i) + 0.2 w_i, both scaled to 0..1 between the least and the most that waits

As in llm-d (llm-d-router at ebab68792): nothing is charged before a request is finished, nor for one that is
cancelled, and cached tokens cost as much as others. Unclear there, and chosen: where all are equal the
scaled value is 0, and the oldest head wins a tie. A policy has no clock: the time is that of the latest
arrival. All s_i decay alike, so that the order by s_i is the same; only a charge weighs a little less.
"""

from math import exp2

from fairhit.core.request import ClientId, Request
from fairhit.core.service import parse_tokens
from fairhit.core.waiting.arrival_queue import ArrivalQueue

SERVICE_WEIGHT, WAIT_WEIGHT = 0.8, 0.2
OUTPUT_COST = 2


class LAS:
    """The client with the best score first; its oldest request first. `half_life` is in microseconds."""

    def __init__(self, *, half_life: int = 60_000_000) -> None:
        self._half_life = parse_tokens(half_life, least=1, where="half-life")
        self._now_us = 0
        self._served: dict[ClientId, tuple[float, int]] = {}  # service, and when it was that
        self._queues: dict[ClientId, ArrivalQueue] = {}
        self._skipped: dict[ClientId, None] = {}

    def add(self, request: Request) -> None:
        """See `Policy.add`. O(log n)."""
        self._now_us = max(self._now_us, request.arrival_us)
        self._queues.setdefault(request.client, ArrivalQueue()).add(request)

    def remove(self, request: Request) -> None:
        """See `Policy.remove`. O(1)."""
        queue = self._queues[request.client]
        queue.remove(request)
        if not queue:
            del self._queues[request.client]
            self._skipped.pop(request.client, None)

    def begin_pass(self) -> None:
        """See `Policy.begin_pass`. O(skipped * log n)."""
        for client in self._skipped:
            self._queues[client].show_all()
        self._skipped.clear()

    def next(self) -> Request | None:
        """Return the oldest request of the best score. O(waiting clients): every score is relative."""
        heads = [head for queue in self._queues.values() if (head := queue.first())]
        if len(heads) < 2:
            return heads[0] if heads else None
        services = _scaled([self._service(head.client) for head in heads])
        waits = _scaled([float(self._now_us - head.arrival_us) for head in heads])
        ranked = [
            (-SERVICE_WEIGHT * (1 - service) - WAIT_WEIGHT * wait, head.order, head)
            for service, wait, head in zip(services, waits, heads, strict=True)
        ]
        return min(ranked)[2]

    def skip(self, request: Request) -> None:
        """See `Policy.skip`."""
        self._skipped[request.client] = None
        self._queues[request.client].hide(request)

    def on_admit(self, request: Request, *, extend_len: int) -> None:
        """Charge nothing yet."""
        self.remove(request)

    def on_decode(self, request: Request, *, before: int, tokens: int) -> None:
        """Charge nothing yet."""

    def on_end(self, request: Request, *, output_len: int, finished: bool) -> None:
        """Charge a finished request. O(1)."""
        if finished:
            cost = request.input_len + OUTPUT_COST * output_len
            self._served[request.client] = self._service(request.client) + cost, self._now_us

    def credit(self, client: ClientId) -> int:
        """Return -s_i in tokens: the client that has attained most is preempted first."""
        return -round(self._service(client))

    def _service(self, client: ClientId) -> float:
        """Return s_i now."""
        service, at_us = self._served.get(client, (0.0, self._now_us))
        return service * exp2((at_us - self._now_us) / self._half_life)


def _scaled(values: list[float]) -> list[float]:
    """Return the values with the least at 0 and the largest at 1; all 0 where they are equal."""
    least, spread = min(values), max(values) - min(values)
    return [(value - least) / spread if spread else 0.0 for value in values]
