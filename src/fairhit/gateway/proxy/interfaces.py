"""Interfaces of the request path: what a client connection and an exchange need of each other."""

from collections.abc import Sequence
from typing import Protocol

from fairhit.errors import FairhitError
from fairhit.gateway.http.response_head import ResponseHead


class ResponseWriter(Protocol):
    """The client connection of a request; each of the last three methods ends the response."""

    def write_stream(self, head: ResponseHead | None, data: bytes) -> None:
        """Write a piece of a response of unknown length, the head before the first piece."""
        ...

    def end_stream(self, last: bytes = b"") -> None:
        """End a response of unknown length, after `last`."""
        ...

    def write_whole(self, head: ResponseHead, body: bytes, more: Sequence[bytes] = ()) -> None:
        """Write a response in one piece: `body`, and after it `more`."""
        ...

    def write_error(self, error: Exception, *, status: int | None = None) -> None:
        """Write an error response of the gateway; within a stream, as an event."""
        ...


class OngoingRequest(Protocol):
    """The request that a client connection is busy with: an exchange, or what precedes one."""

    deadline: float

    def on_disconnect(self) -> None:
        """The client closed its connection: give up, and have the engine abort."""
        ...

    def tick(self, now: float) -> None:
        """Enforce the time limits; called once a second."""
        ...

    def stop(self, error: FairhitError, *, status: int) -> None:
        """End the request now, with `error` as the response."""
        ...

    def pause(self) -> None:
        """Stop reading from the engine: the client reads slowly."""
        ...

    def resume(self) -> None:
        """Read from the engine again."""
        ...
