"""The engines as the dispatcher knows them: state, models, tickets in flight."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Protocol

from fairhit.core.request import Request, WorkerId
from fairhit.core.waiting.heaps import is_hit
from fairhit.dispatch.accounting.output_pace import OutputPace
from fairhit.dispatch.concurrency_limit import ConcurrencyLimit
from fairhit.dispatch.lane import EngineView
from fairhit.dispatch.memory_room import MemoryRoom
from fairhit.dispatch.ticket import Ticket
from fairhit.errors import NoEngine, NotFound

# Models whose engines are cached; only engines that do not list their models can exceed it.
_MAX_MODELS = 1000


class TrialGate(Protocol):
    """Limits the requests to an engine that is on trial, for example by a half-open circuit breaker."""

    @property
    def lets_through(self) -> bool:
        """True if one more request may be sent."""
        ...

    def sent(self) -> None:
        """Count one more request."""
        ...


class EnginePeaks:
    """The largest values seen at one engine so far, in tokens; the fairness bound is computed from them."""

    __slots__ = ("error", "extend", "in_flight", "output")

    def __init__(self) -> None:
        self.extend = 0  # prompt tokens computed for one request
        self.output = 0  # tokens of one answer
        self.error = 0  # difference between the estimated and the final extend of one request
        self.in_flight = 0  # requests at the same time

    def record(self, ticket: Ticket, *, extend_len: int) -> None:
        """Raise the peaks to a ticket's values: `extend_len` computed tokens and the outputs so far. O(1)."""
        if extend_len > self.extend:  # noqa: PLR1730 - max costs three times that
            self.extend = extend_len
        if ticket.output_len > self.output:  # noqa: PLR1730 - as above
            self.output = ticket.output_len
        error = abs(extend_len - ticket.estimated_len) if ticket.estimated_len else 0
        if error > self.error:  # noqa: PLR1730 - as above
            self.error = error


@dataclass(slots=True)
class Engine:
    """State of an engine; `models` None: it does not list its models, so any request may go there."""

    up: bool = False
    accepts: bool = True  # False: draining; the engine finishes its requests and gets no more
    gate: TrialGate | None = None  # set while the engine is on trial
    models: frozenset[str] | None = None
    reports_cached: bool | None = None  # None until its first answer; once True it stays True
    tickets: set[Ticket] = field(default_factory=set)  # in flight: sent and not ended
    load_problem: str | None = (
        None  # reason why its load is unknown while requests wait for it here
    )
    pace: OutputPace = field(default_factory=OutputPace)
    peaks: EnginePeaks = field(default_factory=EnginePeaks)
    # What the engine has cached, how many requests it may have in flight, and what memory they leave.
    # None where no requests wait here.
    view: EngineView | None = None
    limit: ConcurrencyLimit | None = None
    room: MemoryRoom | None = None

    @property
    def is_open(self) -> bool:
        """True if the engine can be sent a request."""
        return self.up and self.accepts and self.lets_through

    @property
    def is_steady(self) -> bool:
        """True if the engine is open and not on trial."""
        return self.is_open and self.gate is None

    @property
    def lets_through(self) -> bool:
        """True if no trial gate forbids one more request."""
        return self.gate is None or self.gate.lets_through

    @property
    def takes_hits(self) -> bool:
        """True if cached prompts may follow a request that was sent: the engine reports its memory."""
        assert self.limit is not None
        return self.room is not None and self.room.is_reported and self.limit.takes_hits

    def has_capacity_for(self, request: Request, matched_len: int) -> bool:
        """Return whether a request fits here of which `matched_len` prompt tokens are cached. O(1)."""
        assert self.limit is not None
        if not (self.limit.has_capacity or is_hit(request, matched_len)):
            return False
        if self.room is None or not self.limit.in_flight:
            return True
        return self.room.fits(request.input_len - matched_len)

    def forget(self) -> None:
        """Forget cache, capacity and memory of an engine that is down. O(cached units)."""
        if self.view is not None:
            self.view.clear()
        if self.limit is not None:
            self.limit.restart()
        if self.room is not None:
            self.room.restart()

    def running_and_pending(self, running: int) -> tuple[int, int]:
        """Return the number of the newest running request, and the prompt tokens that the others compute.

        Assumes that the `running` oldest run; the number is 0 if none is here. O(in flight).
        """
        count = len(self.tickets) - running
        if count <= 0:
            return max(map(_number, self.tickets), default=0), 0
        others = nlargest(count, self.tickets, key=_number)
        return others[-1].number - 1, sum(ticket.extend_len for ticket in others)

    def add(self, ticket: Ticket) -> None:
        """Count `ticket` as in flight here. O(1)."""
        assert ticket not in self.tickets, ticket
        self.tickets.add(ticket)
        if self.room is not None:
            self.room.sent(ticket.extend_len)
        peaks = self.peaks
        peaks.in_flight = max(peaks.in_flight, len(self.tickets))

    def serves(self, model: str | None) -> bool:
        """True if a request for `model` may go here."""
        return model is None or self.models is None or model in self.models


def _number(ticket: Ticket) -> int:
    return ticket.number


class EngineTable:
    """The engines by name, and which of them can be sent requests for a model."""

    def __init__(self) -> None:
        self.engines: dict[WorkerId, Engine] = {}
        self.up = 0  # number of engines that are up
        # Open engines by the requested model; emptied whenever an engine changes.
        self._candidates: dict[str | None, frozenset[WorkerId]] = {}
        self._up_for: dict[str | None, frozenset[WorkerId]] = {}  # the same of those that are up

    def changed(self) -> None:
        """Drop the cached candidates: an engine was added, removed, or serves other models. O(1)."""
        self._candidates.clear()
        self._up_for.clear()

    def up_for(self, model: str | None) -> frozenset[WorkerId]:
        """Return the engines that are up and serve `model`, open or not. O(1) except after a change."""
        engines = self._up_for.get(model)
        if engines is None:
            engines = frozenset(
                name for name, engine in self.engines.items() if engine.up and engine.serves(model)
            )
            if len(self._up_for) >= _MAX_MODELS:
                self._up_for.clear()
            self._up_for[model] = engines
        return engines

    def serving(self, model: str | None) -> frozenset[WorkerId]:
        """Return the open engines that serve `model`; at least one. O(1) except after a change.

        Raises NotFound (no engine serves the model) or NoEngine (none of them is open).
        """
        candidates = self._candidates.get(model)
        if candidates is None:
            known = [name for name, engine in self.engines.items() if engine.serves(model)]
            if self.engines and not known:
                raise NotFound(f"the model {model!r} does not exist", param="model")
            candidates = frozenset(name for name in known if self.engines[name].is_open)
            if not candidates:
                raise NoEngine("no engine is ready")
            if len(self._candidates) >= _MAX_MODELS:
                self._candidates.clear()
            self._candidates[model] = candidates
        return candidates

    def is_listed(self, model: str | None) -> bool:
        """Return whether any known engine may serve `model`. O(1) while one is open, else O(engines)."""
        if model in self._candidates or not self.engines:
            return True
        return any(engine.serves(model) for engine in self.engines.values())

    def untried(self, ticket: Ticket) -> frozenset[WorkerId]:
        """Return the open engines that have not failed `ticket` yet. O(1); O(engines) after a failure."""
        try:
            candidates = self.serving(ticket.model)
        except (NoEngine, NotFound):
            return frozenset()
        return candidates.difference(ticket.tried) if ticket.tried else candidates

    def others(self, ticket: Ticket) -> frozenset[WorkerId]:
        """Return the engines left to `ticket` if its present one fails. Cost as `untried`."""
        return self.untried(ticket).difference((ticket.worker,))

    def can_spare(self, name: WorkerId, others: Iterable[WorkerId] | None = None) -> bool:
        """Return whether `others` (default: all engines) serve every model of `name`.

        Where `name` does not list its models, any other engine suffices. O(engines + their models).
        """
        missing = self.engines[name].models
        for other in self.engines if others is None else others:
            engine = self.engines[other]
            if other == name or not engine.is_steady:
                continue
            if missing is None or engine.models is None or not (missing := missing - engine.models):
                return True
        return False

    def shares(self, name: WorkerId, other: WorkerId) -> bool:
        """Return whether two engines may have a model in common. O(models)."""
        one, two = self.engines[name].models, self.engines[other].models
        return one is None or two is None or not one.isdisjoint(two)

    def set_models(self, name: WorkerId, models: Iterable[str] | None) -> None:
        """Replace the models that `name` lists. O(models)."""
        self.engines[name].models = None if models is None else frozenset(models)
        self.changed()
