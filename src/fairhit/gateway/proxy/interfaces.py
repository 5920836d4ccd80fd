"""What an exchange needs of those around it: its caller, and whoever knows the engines."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from fairhit.core.request import WorkerId
from fairhit.dispatch import Dispatcher, Ticket
from fairhit.gateway.http.engine_connection import EngineConnections, Fault
from fairhit.gateway.http.response_head import ResponseHead
from fairhit.gateway.proxy.incoming_request import Incoming
from fairhit.gateway.proxy.trace import Trace

if TYPE_CHECKING:
    from fairhit.gateway.proxy.exchange import Exchange


class Caller(Protocol):
    """The connection a request came on; any of the last three ends the answer."""

    def write_stream(self, head: ResponseHead | None, data: bytes) -> None:
        """A piece of an answer of unknown length, the head before the first."""
        ...

    def end_stream(self, last: bytes = b"") -> None:
        """The end of it."""
        ...

    def write_whole(self, head: ResponseHead, body: bytes, more: Sequence[bytes] = ()) -> None:
        """An answer in one piece: `body`, and after it `more`."""
        ...

    def write_error(self, error: Exception, *, status: int | None = None) -> None:
        """An answer of the gateway's own; an event where a stream has begun."""
        ...


class Timer(Protocol):
    """Something that will happen."""

    def cancel(self) -> None:
        """Or not."""
        ...


class ProxyServices(Protocol):
    """Where the engines are, and who hears that one of them is not well."""

    dispatcher: Dispatcher
    first_byte_timeout_s: float  # of a stream; 0: no limit, here and in the next
    idle_timeout_s: float

    def engine(self, worker: WorkerId) -> EngineConnections:
        """The engine that is this worker."""
        ...

    def unreachable(self, worker: WorkerId) -> None:
        """No connection could be made: its waiting exchanges are moved at once."""
        ...

    def failing(self, worker: WorkerId, fault: Fault) -> None:
        """It failed a request in this way: to be probed soon, and left alone if it fails most."""
        ...

    def may_retry(self, ticket: Ticket, *, spends: bool) -> bool:
        """Whether its next retry is granted; `spends`: it is one that adds to the engines' work."""
        ...

    def retry_later(self, ticket: Ticket, send: Callable[[], None]) -> Timer:
        """Call `send` when it is time for the retry."""
        ...

    def trace(self, request: Incoming) -> Trace | None:
        """The trace it is part of, None if it is not traced; its headers say so to the engine."""
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

    def over(self, exchange: "Exchange", status: int) -> None:
        """It is over, and its accounts are settled; its caller is told `status`, or LEFT."""
        ...
