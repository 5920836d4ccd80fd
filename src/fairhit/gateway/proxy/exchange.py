"""One request between its caller and the engines: what the dispatcher decides, carried out.

The caller gets nothing before the engine's first piece of body, so that until then another engine
can take over unnoticed. An answer in one piece is held until it is complete, for the same reason.
Whatever of ours fails then, it is settled before the next on its connection is looked at.
"""

from collections.abc import Sequence
from time import monotonic

from fairhit.core.cache.token_blocks import BlockedTokens
from fairhit.dispatch import Ticket, TicketState, Usage
from fairhit.errors import (
    EngineError,
    EngineFailed,
    FairhitError,
    GatewayFull,
    NoEngine,
    NotFound,
    QueueTimeout,
)
from fairhit.gateway.api.endpoints import Endpoint
from fairhit.gateway.api.endpoints.errors import status_of
from fairhit.gateway.api.request_body import Buffer
from fairhit.gateway.api.response_body import StreamedAnswer, WholeAnswer, read_end, read_whole
from fairhit.gateway.http.engine_connection import (
    ENGINE_FAULTS,
    EngineConnection,
    EngineConnections,
    Fault,
    is_ours,
    reason_of,
)
from fairhit.gateway.http.response_head import ResponseHead
from fairhit.gateway.http.step_bounds import TURN
from fairhit.gateway.observability.log_exceptions import guarded
from fairhit.gateway.proxy.completion import settle, settle_unread
from fairhit.gateway.proxy.interfaces import Caller, ProxyServices, Timer
from fairhit.gateway.proxy.trace import Trace
from fairhit.routers.prefix_index.approximate import ChunkedText

# An answer in one piece may not be longer; streams may.
_MAX_WHOLE = 64 << 20
# Outputs of a stream that are charged together: the queue's shares are no finer than that.
_CHARGED = 16
# The status of a request whose caller left, as nginx has it; nobody is told.
LEFT = 499


class Exchange:
    """A request under way. Ends exactly once: answered, refused, failed, or left by its caller."""

    __slots__ = (
        "_answer", "_body", "_caller", "_connection", "_engine", "_head", "_heard", "_hide_usage",
        "_host", "_paused", "_queue_timeout_s", "_queue_until", "_silent_since", "_streams",
        "_target", "_timer", "arrived_s", "deadline", "first_s", "lines", "prompt", "remembers", "sent_s",
        "surface", "ticket", "trace",
    )  # fmt: skip

    def __init__(
        self,
        *,
        host: ProxyServices,
        caller: Caller,
        ticket: Ticket,
        target: bytes,
        lines: bytes,
        body: Sequence[Buffer],
        hide_usage: bool,
        prompt: ChunkedText | BlockedTokens,
        surface: Endpoint,
        remembers: bool,
        streams: bool,
        deadline: float,
        queue_timeout_s: float,
        trace: Trace | None = None,
    ) -> None:
        self.ticket = ticket
        # When it came, was last sent, began to be answered; the last two 0 until then. By the loop's
        # own clock, but to the microsecond.
        self.arrived_s, self.sent_s, self.first_s = monotonic(), 0.0, 0.0
        self.deadline = deadline
        self._queue_timeout_s = queue_timeout_s
        # It gives up if it still waits for an engine with room.
        self._queue_until = self.arrived_s + queue_timeout_s
        self._host = host
        self._caller: Caller | None = caller
        self._target = target
        self.lines = lines
        self._body = body
        self._hide_usage = hide_usage
        self.prompt = prompt
        self.surface = surface
        self.trace = trace
        self.remembers = remembers  # the answer is one that a next turn can begin with
        self._streams = streams
        self._connection: EngineConnection | None = None
        self._engine: EngineConnections | None = None  # the one that was asked last
        self._timer: Timer | None = None  # until the next is
        self._paused = False  # the caller reads slowly
        self._heard = False  # something, since the last tick
        self._silent_since = 0.0
        self._head: ResponseHead | None = None
        self._answer: StreamedAnswer | WholeAnswer | None = None

    def ran_us(self) -> int:
        """How long its engine has had it, in microseconds; at least 1."""
        return max(1, int((monotonic() - self.sent_s) * 1e6))

    # -- towards the engine

    def send(self, *, fresh: bool = False) -> None:
        """Ask the engine the ticket is with, over a connection not used before if `fresh`.

        Not called while the ticket is QUEUED: until an engine has room there is nobody to ask.
        """
        self.sent_s = monotonic()
        engine = self._host.engine(self.ticket.worker)
        connection = None if fresh else engine.take()
        if connection is not None:
            self._ask(engine, connection)
        else:
            engine.spawn(self._connect(engine))

    async def _connect(self, engine: EngineConnections) -> None:
        try:
            connection = await engine.connect()
        except (OSError, ValueError) as error:  # ValueError: a name no resolver accepts
            if self._awaits(engine):
                self._unconnected(engine, error)
            return
        if self._awaits(engine):
            self._ask(engine, connection)
        else:
            engine.give_back(connection)

    def _unconnected(self, engine: EngineConnections, error: Exception) -> None:
        if is_ours(error):
            self._fail(GatewayFull(f"this gateway can open no connection: {reason_of(error)}"))
            return
        self._host.failing(engine.url, Fault.CONNECT)
        if isinstance(error, TimeoutError):  # once late is not down: probes will tell
            self._fail()
        else:
            self._host.unreachable(engine.url)

    def _awaits(self, engine: EngineConnections) -> bool:
        """Whether a connection to `engine` is still what is missing."""
        waits = self._caller is not None and self._connection is None
        return waits and self.ticket.worker == engine.url

    def _ask(self, engine: EngineConnections, connection: EngineConnection) -> None:
        self._connection = connection
        self._engine = engine
        self._heard = True  # its silence begins now
        head = engine.head(self._target, self.lines, sum(map(len, self._body)))
        connection.send(self, [head, *self._body])
        if self._paused:
            connection.pause()

    def move(self) -> None:
        """The engine is down, and had not begun to answer: try the next."""
        self._drop()
        self._fail()

    # -- from the engine

    def on_head(self, head: ResponseHead) -> None:
        if head.status in ENGINE_FAULTS:
            self._host.failing(self.ticket.worker, Fault.STATUS)
            if self._may_retry(spends=True):
                self.move()
                return
        elif head.status == 404 and self._is_elsewhere():
            self.move()
            return
        self._head = head
        if head.status == 200 and head.content_type.startswith(b"text/event-stream"):
            self._answer = StreamedAnswer(self.surface, hide_usage=self._hide_usage)
        else:
            self._answer = WholeAnswer()

    def on_data(self, data: bytes) -> None:
        self._heard = True
        answer = self._answer
        if isinstance(answer, StreamedAnswer):
            data = answer.feed(data)
            if self.ticket.state is TicketState.STARTED and self._caller is not None:
                if data:
                    self._caller.write_stream(None, data)
                if answer.output_len - self.ticket.output_len >= _CHARGED:
                    self._host.dispatcher.emitted(self.ticket, answer.output_len)
            else:
                self._stream(data)
            return
        assert answer is not None
        answer.feed(data)
        if answer.length > _MAX_WHOLE and self._head is not None:  # as it would be elsewhere
            self._drop()
            guarded(settle_unread, self, self._host, self._head.status, answer.length)
            less = "ask for less at once, or for a stream"
            self._end(502).write_error(
                EngineFailed(f"the answer is over {_MAX_WHOLE} bytes: {less}")
            )

    def on_end(self) -> None:
        self._connection = None
        answer, head = self._answer, self._head
        assert answer is not None and head is not None
        if isinstance(answer, StreamedAnswer):
            self._end_stream(answer)
            return
        if answer.length > TURN:
            self._end_long(answer, head)
            return
        body = answer.body()
        try:
            self._finish().write_whole(head, body)  # first: nobody waits for the accounts
        finally:
            counts = head.status == 200 and self.surface.charged
            self._settle(head.status, read_whole(self.surface, body) if counts else (None, None))

    def on_lost(self, *, stale: bool) -> None:
        self._connection = None
        if stale:
            # Most likely the engine closed it while idle. A fresh one cannot be stale: if the
            # request itself is what breaks engines, it is asked no third time.
            self.send(fresh=True)
            return
        self._host.failing(self.ticket.worker, Fault.BROKEN)
        self._fail()

    # -- from the caller and the clock

    def caller_gone(self) -> None:
        """Nobody wants the answer: closing the connection makes the engine abort."""
        self._abandon(LEFT)

    def tick(self, now: float) -> None:
        if self.ticket.state is TicketState.QUEUED:
            if now > min(self.deadline, self._queue_until):
                self._waited_too_long()
        elif now > self.deadline:
            if self._connection is not None and self.ticket.state is TicketState.WAITING:
                self._host.failing(self.ticket.worker, Fault.TIMEOUT)
            self.stop(EngineFailed("the engine did not answer in time"), status=504)
        elif self._heard or self._connection is None or self._connection.is_paused:
            self._heard = False
            self._silent_since = now
        elif now - self._silent_since > (self._patience_s() or now):
            self._silent()

    def _waited_too_long(self) -> None:
        if self._host.dispatcher.queueing.is_full:
            self.stop(QueueTimeout("too many requests were in flight for too long"), status=408)
        else:
            self.stop(NoEngine("no engine had room in time"), status=503)

    def stop(self, error: FairhitError, *, status: int) -> None:
        self._abandon(status).write_error(error, status=status)

    def pause(self) -> None:
        self._paused = True
        if self._connection is not None:
            self._connection.pause()

    def resume(self) -> None:
        self._paused = False
        if self._connection is not None:
            self._connection.resume()

    # -- inside

    def _stream(self, data: bytes) -> None:
        if not data:
            return
        assert self._caller is not None
        head = None
        if self.ticket.state is TicketState.WAITING:
            self.first_s = monotonic()
            self._host.dispatcher.started(self.ticket)
            head = self._head
            self._body = ()  # it will not be sent again
        self._caller.write_stream(head, data)

    def _end_stream(self, answer: StreamedAnswer) -> None:
        self._stream(answer.rest())
        if self.ticket.state is TicketState.WAITING:
            self._host.failing(self.ticket.worker, Fault.BROKEN)
            self._fail()  # a stream without a single event is no answer
            return
        try:
            self._finish().end_stream()
        finally:
            self._count(answer)
            self._settle(200, (answer.usage, answer.text() if self.remembers else None))

    def _end_long(self, answer: WholeAnswer, head: ResponseHead) -> None:
        """Neither joined nor parsed: both would take as long as a thousand requests."""
        pieces, ticket, dispatcher = answer.pieces(), self.ticket, self._host.dispatcher
        try:
            self._finish().write_whole(head, pieces[0], pieces[1:])
        finally:
            usage = None
            if head.status == 200 and self.surface.charged:
                usage = read_end(self.surface, pieces)
                if usage is None and self.surface.limits:
                    by_length = dispatcher.scale.tokens(answer.length)
                    ticket.output_len = min(by_length, ticket.request.max_tokens)
            self._settle(head.status, (usage, None))

    def _settle(self, status: int, said: tuple[Usage | None, str | None]) -> None:
        assert self._engine is not None, "somebody was asked"
        settle(self, self._host, self._engine, status, said)

    def _abandon(self, status: int) -> Caller:
        """Nothing more comes of it, whatever its engine does."""
        asked = self._connection is not None and self.surface.charged
        ran_us = self.ran_us() if asked else 0
        self._drop()
        guarded(self._host.dispatcher.gone, self.ticket, ran_us=ran_us)
        return self._end(status)

    def _patience_s(self) -> float:
        """How long its engine may be silent. An answer in one piece says nothing until it is there."""
        if self._streams and self.ticket.state is TicketState.WAITING:
            return self._host.first_byte_timeout_s
        return self._host.idle_timeout_s if self._head is not None else 0

    def _silent(self) -> None:
        """The engine has said nothing for too long: ask another, where that is still possible."""
        self._host.failing(self.ticket.worker, Fault.TIMEOUT)
        if self._may_retry(spends=True):
            self.move()
        else:
            self.stop(EngineFailed("the engine has fallen silent"), status=504)

    def _is_elsewhere(self) -> bool:
        """Whether another engine is to be asked for what this one says it has not; it may list it no more.

        Once, since most who get this answer would get it anywhere.
        """
        assert self._engine is not None, "somebody was asked"
        self._engine.unknown()
        return not self.ticket.tried and self._may_retry(spends=False)

    def _may_retry(self, *, spends: bool) -> bool:
        can = self._host.dispatcher.can_retry(self.ticket)
        return can and self._host.may_retry(self.ticket, spends=spends)

    def _fail(self, why: GatewayFull | None = None) -> None:
        """The engine is given up, and the next is asked, where there is one; `why` if not by its fault."""
        dispatcher = self._host.dispatcher
        if (
            self.ticket.state is TicketState.WAITING
        ):  # should it have to queue again, it begins anew
            self._queue_until = monotonic() + self._queue_timeout_s
        if isinstance(self._answer, StreamedAnswer):
            self._count(self._answer)
        if dispatcher.can_retry(self.ticket) and not self._may_retry(spends=False):
            dispatcher.refused(self.ticket)
            self._give_up(why or EngineFailed("the engine failed; there are no more retries"))
            return
        try:
            dispatcher.failed(self.ticket)
        except (EngineError, NotFound) as error:
            self._give_up(why or error)
            return
        self._answer = self._head = None
        if self.ticket.state is TicketState.WAITING:
            self._timer = self._host.retry_later(self.ticket, self.send)

    def _give_up(self, error: FairhitError) -> None:
        self._end(status_of(error)).write_error(error)

    def _drop(self) -> None:
        """Close the connection to the engine, or do not make it; count what had come."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._connection is not None:
            self._connection.cancel(self)
            self._connection = None
        if isinstance(self._answer, StreamedAnswer):
            self._count(self._answer)

    def _count(self, answer: StreamedAnswer) -> None:
        """The outputs of a stream that has ended, as far as its engine has not said how many they are."""
        most = self.ticket.request.max_tokens
        self.ticket.output_len = answer.counted(self._host.dispatcher.scale, most=most)

    def _end(self, status: int) -> Caller:
        """It is settled, with no answer but our own."""
        caller = self._finish()
        guarded(self._host.over, self, status)
        return caller

    def _finish(self) -> Caller:
        caller, self._caller = self._caller, None
        assert caller is not None, "an exchange ends once"
        self._host.ended(self)
        return caller
