"""The engines: which are up, what they serve, and what is with them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from fairhit.core.request import ClientId, WorkerId
from fairhit.dispatch.accounting.output_pace import OutputPace
from fairhit.dispatch.engine_queue import EngineQueue
from fairhit.dispatch.ticket import Ticket
from fairhit.errors import NoEngine, NotFound

# Models remembered with their workers; only engines that do not say what they serve can reach it.
_MAX_MODELS = 1000


class TrialGate(Protocol):
    """Counts what is sent to an engine that is on trial."""

    @property
    def lets_through(self) -> bool:
        """Whether one more may be sent."""
        ...

    def sent(self) -> None:
        """One more is."""
        ...


@dataclass(slots=True)
class Engine:
    """What is known about an engine; `models` None: any, since it does not say."""

    up: bool = False
    takes: bool = True  # False: it finishes what it has and gets no more
    gate: TrialGate | None = None  # while it is on trial: who lets only a few through
    models: frozenset[str] | None = None
    reports_cached: bool | None = None  # None until its first answer; once True it stays
    tickets: set[Ticket] = field(default_factory=set)  # that were sent and have not ended
    of_client: dict[ClientId, int] = field(default_factory=dict)  # how many of these are whose
    load_problem: str | None = None  # why its load is not known, while its requests wait here
    pace: OutputPace = field(default_factory=OutputPace)
    queue: EngineQueue | None = None  # None: it does its own queueing, and is sent all at once

    @property
    def is_open(self) -> bool:
        """Whether it gets requests."""
        return self.up and self.takes and self.lets_through

    @property
    def is_steady(self) -> bool:
        """Whether it gets all requests: one on trial takes a few only."""
        return self.is_open and self.gate is None

    @property
    def lets_through(self) -> bool:
        """Whether it may be sent one more."""
        return self.gate is None or self.gate.lets_through

    def send(self, ticket: Ticket) -> None:
        """It is under way to here. O(1)."""
        assert ticket not in self.tickets, ticket
        client = ticket.request.client
        self.tickets.add(ticket)
        self.of_client[client] = self.of_client.get(client, 0) + 1

    def leave(self, ticket: Ticket) -> None:
        """It has ended or goes elsewhere, if it was here. O(1)."""
        if ticket not in self.tickets:
            return
        client = ticket.request.client
        self.tickets.remove(ticket)
        self.of_client[client] -= 1
        if not self.of_client[client]:
            del self.of_client[client]

    def serves(self, model: str | None) -> bool:
        """Whether a request for `model` may go here."""
        return model is None or self.models is None or model in self.models


class EngineTable:
    """The engines by name, and those that may serve a model."""

    def __init__(self) -> None:
        self.workers: dict[WorkerId, Engine] = {}
        self.up = 0  # how many are
        # The workers that are open, by the model asked for; emptied whenever a worker changes.
        self._candidates: dict[str | None, frozenset[WorkerId]] = {}

    def changed(self) -> None:
        """Some worker came, went, or serves something else. O(1)."""
        self._candidates.clear()

    def serving(self, model: str | None) -> frozenset[WorkerId]:
        """The workers that are open and have `model`; at least one. O(1) except after a change.

        Raises NotFound (no engine has the model) or NoEngine.
        """
        candidates = self._candidates.get(model)
        if candidates is None:
            known = [name for name, worker in self.workers.items() if worker.serves(model)]
            if self.workers and not known:
                raise NotFound(f"the model {model!r} does not exist", param="model")
            candidates = frozenset(name for name in known if self.workers[name].is_open)
            if not candidates:
                raise NoEngine("no engine is ready")
            if len(self._candidates) >= _MAX_MODELS:
                self._candidates.clear()
            self._candidates[model] = candidates
        return candidates

    def is_listed(self, model: str | None) -> bool:
        """Whether any engine has `model`, as far as is known. O(1) while one is open, else O(workers)."""
        if model in self._candidates or not self.workers:
            return True
        return any(worker.serves(model) for worker in self.workers.values())

    def untried(self, ticket: Ticket) -> frozenset[WorkerId]:
        """Where it may still go. O(1); O(workers) for one that has failed."""
        try:
            candidates = self.serving(ticket.model)
        except (NoEngine, NotFound):
            return frozenset()
        return candidates.difference(ticket.tried) if ticket.tried else candidates

    def others(self, ticket: Ticket) -> frozenset[WorkerId]:
        """Where it may go instead, should its engine fail it. As `untried`."""
        return self.untried(ticket).difference((ticket.worker,))

    def can_spare(self, name: WorkerId, others: Iterable[WorkerId] | None = None) -> bool:
        """Whether `others`, all by default, can do without `name`: each of its models is served elsewhere.

        Where `name` does not say what it serves, anybody will do. O(workers + their models).
        """
        missing = self.workers[name].models
        for other in self.workers if others is None else others:
            worker = self.workers[other]
            if other == name or not worker.is_steady:
                continue
            if missing is None or worker.models is None or not (missing := missing - worker.models):
                return True
        return False

    def shares(self, name: WorkerId, other: WorkerId) -> bool:
        """Whether the two may have a model in common. O(models)."""
        one, two = self.workers[name].models, self.workers[other].models
        return one is None or two is None or not one.isdisjoint(two)

    def set_models(self, name: WorkerId, models: Iterable[str] | None) -> None:
        """`name` serves these. O(models)."""
        self.workers[name].models = None if models is None else frozenset(models)
        self.changed()
