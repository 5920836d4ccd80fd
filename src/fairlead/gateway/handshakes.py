"""TLS: who has connected and not shaken hands yet is counted, like who has been let in.

A server of the event loop's own tells nobody of a connection before its handshake is done, nor of one
that fails; so here connections are accepted one by one.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Sequence
from ssl import SSLContext
from typing import Protocol

from fairlead.gateway.caller import CallerConnection

# A handshake is two answers of the caller's: a minute is for requests.
_PATIENCE_S = 10.0
# Until it is tried again where the machine has no more sockets.
_FULL_S = 0.5


class Lobby(Protocol):
    """Knows how many there may be."""

    def enter(self, connection: CallerConnection, peer: str) -> bool:
        """Whether one more from this address may shake hands; if so, it is counted."""
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
        tls: SSLContext,
        patience_s: float,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._callers = callers
        self._lobby = lobby
        self._tls = tls
        self._patience_s = min(_PATIENCE_S, patience_s)
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

    def _accept(self, listening: socket.socket) -> None:
        """One, and the loop calls again for the next: those that are in have their turn."""
        try:
            one, address = listening.accept()
        except (BlockingIOError, ConnectionAbortedError):  # another process has it, or it has left
            return
        except OSError:  # the machine has no more sockets
            self._loop.remove_reader(listening)
            self._loop.call_later(_FULL_S, self._go_on, listening)
            return
        one.setblocking(False)
        connection = self._callers()
        if self._lobby.enter(connection, str(address[0])):
            task = self._loop.create_task(self._shake_hands(one, connection))
            self.entering.add(task)
            task.add_done_callback(self.entering.discard)
        else:
            one.close()  # without a word: whatever is said here is said after the handshake

    def _go_on(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0:  # not closed meanwhile
            self._loop.add_reader(listening, self._accept, listening)

    async def _shake_hands(self, one: socket.socket, connection: CallerConnection) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection, one, ssl=self._tls, ssl_handshake_timeout=self._patience_s
            )
        except (OSError, TimeoutError):  # errors of TLS are of the first kind
            self._lobby.discard(connection)
            with contextlib.suppress(OSError):
                one.close()
        except BaseException:
            self._lobby.discard(connection)
            raise
