"""One request between its caller and the engines: what the dispatcher decides, carried out.

The caller gets nothing before the engine's first piece of body, so that until then another engine
can take over unnoticed. An answer in one piece is held until it is complete, for the same reason.
"""

from collections.abc import Sequence
from typing import Protocol

from fairlead.core.chunk_index import ChunkedText
from fairlead.core.request import WorkerId
from fairlead.dispatch import Dispatcher, State, Ticket
from fairlead.errors import EngineError, EngineFailed
from fairlead.gateway.answers import StreamedAnswer, WholeAnswer, read_whole
from fairlead.gateway.openai import Buffer
from fairlead.gateway.surface import Surface
from fairlead.gateway.upstream import Engine, EngineConnection, Head

# An answer in one piece may not be longer; streams may.
_MAX_WHOLE = 64 << 20
# What an engine answers when it is broken or full rather than asked something wrong.
_ENGINE_FAULTS = frozenset((500, 502, 503, 504))


class Caller(Protocol):
    """The connection a request came on; any of the last three ends the answer."""

    def write_stream(self, head: Head | None, data: bytes) -> None:
        """A piece of an answer of unknown length, the head before the first."""
        ...

    def end_stream(self, last: bytes = b"") -> None:
        """The end of it."""
        ...

    def write_whole(self, head: Head, body: bytes) -> None:
        """An answer in one piece."""
        ...

    def write_error(self, error: Exception, *, status: int | None = None) -> None:
        """An answer of the gateway's own; an event where a stream has begun."""
        ...


class Host(Protocol):
    """Where the engines are, and who hears that one of them is not well."""

    dispatcher: Dispatcher

    def engine(self, worker: WorkerId) -> Engine:
        """The engine that is this worker."""
        ...

    def unreachable(self, worker: WorkerId) -> None:
        """No connection could be made: its waiting exchanges are moved at once."""
        ...

    def suspect(self, worker: WorkerId) -> None:
        """It broke a connection or answered nonsense: to be probed soon."""
        ...

    def began(self, exchange: "Exchange") -> None:
        """It is under way."""
        ...

    def said(self, exchange: "Exchange", answer: str) -> None:
        """The engine has the prompt and this answer cached."""
        ...

    def ended(self, exchange: "Exchange") -> None:
        """It is over."""
        ...


class Exchange:
    """A request under way. Ends exactly once: answered, refused, failed, or left by its caller."""

    __slots__ = (
        "_answer", "_body", "_caller", "_connection", "_head", "_hide_usage", "_host", "_lines",
        "_remembers", "_target", "deadline", "prompt", "surface", "ticket",
    )  # fmt: skip

    def __init__(
        self,
        *,
        host: Host,
        caller: Caller,
        ticket: Ticket,
        target: bytes,
        lines: bytes,
        body: Sequence[Buffer],
        hide_usage: bool,
        prompt: ChunkedText,
        surface: Surface,
        remembers: bool,
        deadline: float,
    ) -> None:
        self.ticket = ticket
        self.deadline = deadline
        self._host = host
        self._caller: Caller | None = caller
        self._target = target
        self._lines = lines
        self._body = body
        self._hide_usage = hide_usage
        self.prompt = prompt
        self.surface = surface
        self._remembers = remembers  # the answer is one that a next turn can begin with
        self._connection: EngineConnection | None = None
        self._head: Head | None = None
        self._answer: StreamedAnswer | WholeAnswer | None = None

    # -- towards the engine

    def send(self, *, fresh: bool = False) -> None:
        """Ask the engine the ticket is with, over a connection not used before if `fresh`."""
        engine = self._host.engine(self.ticket.worker)
        connection = None if fresh else engine.take()
        if connection is not None:
            self._ask(engine, connection)
        else:
            engine.spawn(self._connect(engine))

    async def _connect(self, engine: Engine) -> None:
        try:
            connection = await engine.connect()
        except (OSError, ValueError):  # ValueError: a name no resolver accepts
            if self._awaits(engine):
                self._host.unreachable(engine.url)
            return
        if self._awaits(engine):
            self._ask(engine, connection)
        else:
            engine.give_back(connection)

    def _awaits(self, engine: Engine) -> bool:
        """Whether a connection to `engine` is still what is missing."""
        waits = self._caller is not None and self._connection is None
        return waits and self.ticket.worker == engine.url

    def _ask(self, engine: Engine, connection: EngineConnection) -> None:
        self._connection = connection
        head = b"POST %b%b HTTP/1.1\r\n%b%bcontent-length: %d\r\n\r\n" % (
            engine.path,
            self._target,
            engine.fixed_lines,
            self._lines,
            sum(map(len, self._body)),
        )
        connection.send(self, [head, *self._body])

    def move(self) -> None:
        """The engine is down, and had not begun to answer: try the next."""
        self._drop()
        self._fail()

    # -- from the engine

    def on_head(self, head: Head) -> None:
        if head.status in _ENGINE_FAULTS and self._host.dispatcher.can_retry(self.ticket):
            self._host.suspect(self.ticket.worker)
            self.move()
            return
        self._head = head
        if head.status == 200 and head.content_type.startswith(b"text/event-stream"):
            self._answer = StreamedAnswer(self.surface, hide_usage=self._hide_usage)
        else:
            self._answer = WholeAnswer()

    def on_data(self, data: bytes) -> None:
        answer = self._answer
        if isinstance(answer, StreamedAnswer):
            self._stream(answer.feed(data))
            return
        assert answer is not None
        answer.feed(data)
        if answer.length > _MAX_WHOLE:
            self.move()

    def on_end(self) -> None:
        self._connection = None
        answer, head = self._answer, self._head
        assert head is not None
        if isinstance(answer, StreamedAnswer):
            self._end_stream(answer)
            return
        assert answer is not None
        body = answer.body()
        self._finish().write_whole(head, body)  # first: nobody waits for the accounts
        if head.status == 200 and self.surface.charged:
            usage, text = read_whole(self.surface, body)
            self._host.dispatcher.finished(self.ticket, usage)
            if text and self._remembers:
                self._host.said(self, text)
        else:
            self._host.dispatcher.refused(self.ticket)

    def on_lost(self, *, stale: bool) -> None:
        self._connection = None
        if stale:
            # Most likely the engine closed it while idle. A fresh one cannot be stale: if the
            # request itself is what breaks engines, it is asked no third time.
            self.send(fresh=True)
            return
        self._host.suspect(self.ticket.worker)
        self._fail()

    # -- from the caller and the clock

    def caller_gone(self) -> None:
        """Nobody wants the answer: closing the connection makes the engine abort."""
        self._drop()
        self._host.dispatcher.gone(self.ticket)
        self._finish()

    def expire(self) -> None:
        """The deadline has passed."""
        self._drop()
        self._host.dispatcher.gone(self.ticket)
        late = EngineFailed("the engine did not answer in time")
        self._finish().write_error(late, status=504)

    def pause(self) -> None:
        """The caller reads slowly, so the engine is read slowly."""
        if self._connection is not None:
            self._connection.pause()

    def resume(self) -> None:
        """The caller has caught up."""
        if self._connection is not None:
            self._connection.resume()

    # -- inside

    def _stream(self, data: bytes) -> None:
        if not data:
            return
        assert self._caller is not None
        head = None
        if self.ticket.state is State.WAITING:
            self._host.dispatcher.started(self.ticket)
            head = self._head
            self._body = ()  # it will not be sent again
        self._caller.write_stream(head, data)

    def _end_stream(self, answer: StreamedAnswer) -> None:
        self._stream(answer.rest())
        if self.ticket.state is State.WAITING:
            self._fail()  # a stream without a single event is no answer
            return
        self._finish().end_stream()
        self.ticket.output_len = answer.output_len
        self._host.dispatcher.finished(self.ticket, answer.usage)
        text = answer.text() if self._remembers else None
        if text:
            self._host.said(self, text)

    def _fail(self) -> None:
        if isinstance(self._answer, StreamedAnswer):
            self.ticket.output_len = self._answer.output_len
        try:
            self._host.dispatcher.failed(self.ticket)
        except EngineError as error:
            self._finish().write_error(error)
            return
        self._answer = self._head = None
        self.send()

    def _drop(self) -> None:
        """Close the connection to the engine; count what had come."""
        if self._connection is not None:
            self._connection.cancel(self)
            self._connection = None
        if isinstance(self._answer, StreamedAnswer):
            self.ticket.output_len = self._answer.output_len

    def _finish(self) -> Caller:
        caller, self._caller = self._caller, None
        assert caller is not None, "an exchange ends once"
        self._host.ended(self)
        return caller
