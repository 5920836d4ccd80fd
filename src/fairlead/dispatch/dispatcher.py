"""The gateway's state machine: what happened goes in, where to send a request comes out. No I/O.

A request is a *ticket* from its arrival to its end. Every ticket ends exactly once: finished by its
engine, refused by it, given up by its caller, or failed for want of an engine that could serve it.
What it was charged at dispatch is then replaced by what it really got (DESIGN 3.4).
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from fairlead.core.chunk_index import chunks_len
from fairlead.core.estimates import Estimates
from fairlead.core.ledger import Ledger
from fairlead.core.matches import Matches
from fairlead.core.prefix_index import Admitting, PrefixIndex
from fairlead.core.protocols import Router
from fairlead.core.request import ClientId, Request, Unit, WorkerId
from fairlead.core.token_scale import TokenScale
from fairlead.dispatch.tickets import State, Ticket, Usage
from fairlead.dispatch.workers import Worker
from fairlead.errors import EngineFailed, NoEngine, NotFound, QueueFull

# A token number in the text of the prefix index.
TOKEN_BYTES = 4
# What a prompt may be longer than its text: images named by a URL, a template's own words.
_MAX_UNSEEN = 1 << 17
# Beyond this a text is not what was counted: an image in base64, a prompt the engine cut.
_MAX_BYTES_A_TOKEN = 32
# OpenAI's limit on the answers to one prompt.
_MAX_CHOICES = 128
# Models remembered with their workers; only engines that do not say what they serve can reach it.
_MAX_MODELS = 1000


def _counted(length: int) -> int:
    """Tokens in `length` bytes of prompt that came, or were made, as token numbers."""
    return length // TOKEN_BYTES


class Dispatcher:
    """Owns the router, the prefix index, the tickets and the clients' accounts."""

    def __init__(self, *, router: Router, index: PrefixIndex, max_in_flight: int = 1024) -> None:
        self.router = router
        self.index = index
        # Bytes of text that the first so many units of a prompt cover.
        self.covered: Callable[[int], int] = chunks_len
        self._admitting = index if isinstance(index, Admitting) else None
        self.scale = TokenScale()
        self.estimates = Estimates()
        self.ledger = Ledger()
        self.workers: dict[WorkerId, Worker] = {}
        self.retries = 0
        self._max_in_flight = max_in_flight
        self._reserved: dict[ClientId, int] = {}  # no client has a zero here
        # The workers that are up, by the model asked for; emptied whenever a worker changes.
        self._candidates: dict[str | None, tuple[WorkerId, ...]] = {}
        self._up = 0  # how many workers are up

    # -- requests

    def reserve(self, client: ClientId) -> None:
        """Keep a place for a request of `client` that has yet to arrive. O(1). Raises QueueFull."""
        self._check_room(client)
        self._reserved[client] = self._reserved.get(client, 0) + 1

    def release(self, client: ClientId) -> None:
        """The request that a place was kept for arrives now, or never. O(1)."""
        left = self._reserved.pop(client) - 1
        assert left >= 0, client
        if left:
            self._reserved[client] = left

    def arrive(self, request: Request, *, model: str | None, text_len: int) -> Ticket:
        """Send `request` where the router says. O(chunks of the prompt + workers).

        Raises QueueFull, NotFound (no engine has the model) or NoEngine.
        """
        self._check_room(request.client)
        candidates = self._serving(model)
        ticket = Ticket(request, model, text_len)
        self._send(ticket, candidates)
        self.ledger.begin(request.client)
        return ticket

    def started(self, ticket: Ticket) -> None:
        """The caller gets the first byte of the answer: this counts as admission. O(1)."""
        assert ticket.state is State.WAITING, ticket
        ticket.state = State.STARTED
        self._admitted(ticket)

    def finished(self, ticket: Ticket, usage: Usage | None) -> None:
        """The engine answered in full. O(1)."""
        self._admitted(ticket)
        extend_len = ticket.extend_len
        if usage is not None:
            extend_len = self._learn(ticket, self._completed(ticket, usage))
        self._end(ticket, extend_len=extend_len)

    def remember(self, name: WorkerId, chunks: Sequence[Unit]) -> None:
        """`name` has these chunks cached too: the answer, with which the next turn begins."""
        worker = self.workers.get(name)
        if worker is not None and worker.up:
            self.index.insert(name, chunks)

    def refused(self, ticket: Ticket) -> None:
        """The engine answered that it will not serve this request: nothing is charged."""
        self._end(ticket, extend_len=0)

    def gone(self, ticket: Ticket) -> None:
        """The caller left. It stays charged for what it got, and for that only."""
        self._end(ticket, extend_len=ticket.extend_len if ticket.state is State.STARTED else 0)

    def failed(self, ticket: Ticket) -> None:
        """Its engine failed. Afterwards `ticket.worker` is the next to try, the charge moved there.

        Raises EngineFailed or NoEngine if the ticket has ended instead: its answer had begun, or
        every engine was tried once.
        """
        if ticket.state is State.STARTED:
            self._end(ticket, extend_len=ticket.extend_len)
            raise EngineFailed("the engine failed while answering")
        ticket.tried += (ticket.worker,)
        left = self._untried(ticket)
        if not left:
            self._end(ticket, extend_len=0)
            if self.ready():
                raise EngineFailed("the engine failed, and there is no other left to try")
            raise NoEngine("no engine is ready")
        self.router.settle(ticket.request, ticket.worker, extend_len=0, output_len=0)
        self._leave_worker(ticket)
        self._send(ticket, left)
        self.retries += 1

    def can_retry(self, ticket: Ticket) -> bool:
        """Whether `failed` would find another engine. Pure."""
        others = (worker for worker in self._untried(ticket) if worker != ticket.worker)
        return ticket.state is State.WAITING and any(others)

    # -- workers

    def worker_up(self, name: WorkerId, *, models: Iterable[str] | None = None) -> None:
        """`name` answers and serves `models`: new, back, or still there. O(workers)."""
        worker = self.workers.setdefault(name, Worker())
        worker.models = None if models is None else frozenset(models)
        self._candidates.clear()
        if not worker.up:
            worker.up = True
            self._up += 1
            worker.reports_cached = None  # it may be another build, or have other flags
            self.router.add_worker(name)
            self.index.add_worker(name)

    def worker_down(self, name: WorkerId) -> list[Ticket]:
        """`name` is lost with its cache; the tickets it had not begun to answer, to be `failed`."""
        worker = self.workers.setdefault(name, Worker())
        self._candidates.clear()
        if worker.up:
            worker.up = False
            self._up -= 1
            self.router.remove_worker(name)
            self.index.drop_worker(name)
        waiting = (ticket for ticket in worker.tickets if ticket.state is State.WAITING)
        return sorted(waiting, key=lambda ticket: ticket.request.order)

    def forget_worker(self, name: WorkerId) -> list[Ticket]:
        """As `worker_down`, and `name` is not expected back."""
        waiting = self.worker_down(name)
        del self.workers[name]
        self.estimates.forget(name)
        return waiting

    def set_taking(self, name: WorkerId, *, taking: bool) -> None:
        """Whether `name` gets requests while it is up; it keeps what it has. O(1)."""
        self.workers[name].takes = taking
        self._candidates.clear()

    def ready(self) -> bool:
        """Whether any engine can be asked. O(workers)."""
        return any(worker.is_open for worker in self.workers.values())

    # -- inside

    def _check_room(self, client: ClientId) -> None:
        in_flight = self.ledger.in_flight(client) + self._reserved.get(client, 0)
        if in_flight >= self._max_in_flight:
            raise QueueFull(f"you have {in_flight} requests in flight, and may have no more")

    def _serving(self, model: str | None) -> tuple[WorkerId, ...]:
        """The workers that are up and have `model`; at least one. O(1) except after a change."""
        candidates = self._candidates.get(model)
        if candidates is None:
            known = [name for name, worker in self.workers.items() if worker.serves(model)]
            if self.workers and not known:
                raise NotFound(f"the model {model!r} does not exist", param="model")
            candidates = tuple(name for name in known if self.workers[name].is_open)
            if not candidates:
                raise NoEngine("no engine is ready")
            if len(self._candidates) >= _MAX_MODELS:
                self._candidates.clear()
            self._candidates[model] = candidates
        return candidates

    def _untried(self, ticket: Ticket) -> list[WorkerId]:
        try:
            candidates = self._serving(ticket.model)
        except (NoEngine, NotFound):
            return []
        return [worker for worker in candidates if worker not in ticket.tried]

    def _send(self, ticket: Ticket, candidates: Collection[WorkerId]) -> None:
        request = ticket.request
        tokens = self.scale.tokens if ticket.text_len else _counted
        matched = {
            name: min(tokens(self.covered(depth)), request.input_len - 1)
            for name, depth in self.index.match(request.prompt).items()
            if depth
        }
        ticket.worker = self.router.route(
            request,
            matches=Matches.of_each(matched),
            candidates=None if len(candidates) == self._up else frozenset(candidates),
        )
        ticket.matched_len = matched.get(ticket.worker, 0)
        self.router.dispatch(request, ticket.worker, extend_len=ticket.extend_len)
        # Alg. 2, line 19. Optimistic: the engine has yet to compute it.
        self.index.insert(ticket.worker, request.prompt)
        self.workers[ticket.worker].tickets.add(ticket)

    def _admitted(self, ticket: Ticket) -> None:
        if self._admitting is not None:
            self._admitting.admitted(ticket.worker, ticket.request.prompt)

    def _completed(self, ticket: Ticket, usage: Usage) -> Usage:
        """`usage` with the zero that was left out: vLLM 0.15 to 0.20 leave the details out if nothing
        was cached, and from an engine that has reported cached tokens silence means none.
        """
        worker = self.workers.get(ticket.worker)
        if worker is None:
            return usage
        if usage.cached_len is not None:
            worker.reports_cached = True
        elif worker.reports_cached:
            return usage._replace(cached_len=0)
        else:
            worker.reports_cached = False
        return usage

    def _learn(self, ticket: Ticket, usage: Usage) -> int:
        """Replace the estimates by what the engine said; the prompt tokens it computed."""
        request, text_len = ticket.request, ticket.text_len
        # One absurd answer must not decide a client's share for hours. No token is less than a byte.
        prompt_len = min(usage.prompt_len, (text_len or request.input_len) + _MAX_UNSEEN)
        if prompt_len <= text_len <= prompt_len * _MAX_BYTES_A_TOKEN:
            self.scale.learn(text_len, prompt_len)
        cached_len = ticket.matched_len if usage.cached_len is None else usage.cached_len
        extend_len = max(1, prompt_len - cached_len)
        if usage.cached_len is not None:
            self.estimates.compare(
                ticket.worker,
                estimated=ticket.extend_len,
                reported=extend_len,
                prompt_len=prompt_len,
            )
        ticket.matched_len = max(0, prompt_len - extend_len)
        # Of a batch, each prompt is answered, and each has a token at least.
        answers = _MAX_CHOICES + request.input_len
        ticket.output_len = min(usage.output_len, request.max_tokens * answers)
        return extend_len

    def _end(self, ticket: Ticket, *, extend_len: int) -> None:
        """Settle: `extend_len` 0 says that nothing was served."""
        assert ticket.state is not State.ENDED, ticket
        ticket.state = State.ENDED
        cached_len, output_len = ticket.matched_len, ticket.output_len
        if not extend_len:
            cached_len = output_len = 0
        self.router.settle(
            ticket.request, ticket.worker, extend_len=extend_len, output_len=output_len
        )
        self._leave_worker(ticket)
        self.ledger.end(
            ticket.request.client,
            extend_len=extend_len,
            cached_len=cached_len,
            output_len=output_len,
        )

    def _leave_worker(self, ticket: Ticket) -> None:
        worker = self.workers.get(ticket.worker)
        if worker is not None:
            worker.tickets.discard(ticket)
