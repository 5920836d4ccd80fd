"""Connections are accepted here, one by one, and are counted before anything else.

A server of the event loop's own tells nobody of a connection before its TLS handshake is done, nor of
one whose handshake fails; and where the process has no file descriptor left, it closes connections
without an answer.
"""

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Callable, Sequence
from ssl import SSLContext
from typing import Protocol

from fairhit.errors import GatewayFull
from fairhit.gateway.api.endpoints.errors import openai_error, retry_after
from fairhit.gateway.http.client_connection import CallerConnection

# A handshake is two answers of the caller's: a minute is for requests.
_PATIENCE_S = 10.0
# Until it is tried again where the machine has no more sockets.
_FULL_S = 0.5
# Connections that are accepted before those that are in have their turn. It takes four turns of the loop
# until what one has sent is read: meanwhile fewer may come than the reserve beyond the limit holds.
_AT_ONCE = 4
# What a caller may have sent until its connection is closed unread.
_UNREAD = 64 << 10


class Lobby(Protocol):
    """Knows how many there may be."""

    def enter(self, connection: CallerConnection, peer: str, leave: Callable[[], object]) -> bool:
        """Count one more from this address, perhaps instead of another; False: close it.

        `leave` ends it while it shakes hands.
        """
        ...

    def discard(self, connection: CallerConnection) -> None:
        """It did not, or has left since."""
        ...


class Entrance:
    """Listens on bound sockets, from its making to `close`. Raises OSError."""

    def __init__(
        self,
        bound: Sequence[socket.socket],
        *,
        backlog: int,
        callers: Callable[[], CallerConnection],
        lobby: Lobby,
        tls: SSLContext | None,
        patience_s: float,
        short: Callable[[OSError], object],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._callers = callers
        self._lobby = lobby
        self._tls = tls
        self._patience_s = min(_PATIENCE_S, patience_s) if tls is not None else None
        self._short = short  # is told of each connection for which there is no descriptor
        self._spare = _spare()  # given up for a moment, to answer where there is no other
        self.entering: set[asyncio.Task[None]] = set()
        self._sockets = [socket.socket(fileno=os.dup(one.fileno())) for one in bound]
        for one in self._sockets:
            one.setblocking(False)
            one.listen(backlog)
            self._loop.add_reader(one, self._accept, one)

    def close(self) -> None:
        """Take no more; those that are `entering` go on, and who has connected can still be accepted."""
        for one in self._sockets:
            self._loop.remove_reader(one)
            one.close()
        self._give_up_spare()

    def let_in(self, one: socket.socket, peer: str) -> None:
        """Have a connection that was accepted served, where the lobby counts it."""
        one.setblocking(False)
        connection = self._callers()
        tasks: list[asyncio.Task[None]] = []  # ended by `leave` while it shakes hands
        leave = (lambda: [task.cancel() for task in tasks]) if self._tls is not None else _stay
        if not self._lobby.enter(connection, peer, leave):
            self._turn_away(one, GatewayFull("this gateway has too many connections"))
            return
        task = self._loop.create_task(self._shake_hands(one, connection))
        tasks.append(task)
        self.entering.add(task)
        task.add_done_callback(self.entering.discard)

    def _accept(self, listening: socket.socket) -> None:
        """Some, and the loop calls again for the next: those that are in have their turn."""
        for _ in range(_AT_ONCE):
            try:
                one, address = listening.accept()
            except (BlockingIOError, ConnectionAbortedError):  # there are no more, or it has left
                return
            except OSError as error:  # no more descriptors, or no memory for sockets
                self._run_short(listening, error)
                return
            self.let_in(one, str(address[0]))

    def _run_short(self, listening: socket.socket, error: OSError) -> None:
        """Answer one caller by means of the spare descriptor; wait a while where that fails."""
        self._short(error)
        if error.errno in {errno.EMFILE, errno.ENFILE} and self._give_up_spare():
            with contextlib.suppress(OSError):
                one, _ = listening.accept()
                self._turn_away(one, GatewayFull("this gateway has no file descriptor left"))
        self._spare = _spare()
        if self._spare is None:
            self._loop.remove_reader(listening)
            self._loop.call_later(_FULL_S, self._go_on, listening)

    def _go_on(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0:  # not closed meanwhile
            self._loop.add_reader(listening, self._accept, listening)

    def _give_up_spare(self) -> bool:
        spare, self._spare = self._spare, None
        if spare is not None:
            os.close(spare)
        return spare is not None

    def _turn_away(self, one: socket.socket, error: GatewayFull) -> None:
        """Answer `error` and close; with TLS, where nothing can be said before a handshake, only close."""
        with contextlib.suppress(OSError), one:
            if self._tls is None:
                one.setblocking(False)
                one.send(_written(error))
                one.shutdown(socket.SHUT_WR)
                one.recv(_UNREAD)  # what is unread would reset the connection, and lose the answer

    async def _shake_hands(self, one: socket.socket, connection: CallerConnection) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection,
                one,
                ssl=self._tls,
                ssl_handshake_timeout=self._patience_s,
            )
        except (OSError, TimeoutError):  # errors of TLS are of the first kind
            self._lobby.discard(connection)
            with contextlib.suppress(OSError):
                one.close()
        except BaseException:
            self._lobby.discard(connection)
            with contextlib.suppress(OSError):
                one.close()
            raise


def _stay() -> None:
    """Without TLS it is open in a moment, and can be told then."""


def _spare() -> int | None:
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _written(error: GatewayFull) -> bytes:
    """The whole answer."""
    body, wait = openai_error(error, error.status), retry_after(error, error.status)
    return (
        b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\nretry-after: %d\r\nconnection: close\r\n\r\n%b"
        % (len(body), wait or 1, body)
    )
