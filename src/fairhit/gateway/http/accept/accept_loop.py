"""Accept loop of one address: connections are accepted one by one, and counted before anything else.

The event loop's own server reports a connection after its TLS handshake only, and never one whose
handshake fails; and without a free file descriptor it closes connections without a response.
"""

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Callable
from ssl import SSLContext

from fairhit.errors import GatewayFull
from fairhit.gateway.api.endpoints.errors import openai_error, retry_after
from fairhit.gateway.http.accept.connections import Connections
from fairhit.gateway.http.client_connection import ClientConnection

# Connections in the system's queue.
_BACKLOG = 1024
# A handshake is two messages of the client's: a minute is for requests.
_HANDSHAKE_S = 10.0
# Pause of the loop where the machine has no more sockets.
_PAUSE_S = 0.5
# Connections accepted in one iteration of the event loop. It takes four iterations until the request of one
# is read: meanwhile fewer may arrive than the reserve beyond the limit holds.
_BATCH = 4
# Bytes read from a connection that is closed without being served.
_DISCARDED_LEN = 64 << 10


class AcceptLoop:
    """Listens on the sockets of `server`, which is bound, until `close`. Raises OSError."""

    def __init__(
        self,
        server: asyncio.Server,
        *,
        protocol: Callable[[], ClientConnection],
        connections: Connections[ClientConnection],
        tls: SSLContext | None,
        timeout_s: float,
        on_error: Callable[[OSError], object],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._server = server
        self._protocol = protocol
        self._connections = connections
        self._tls = tls
        self._timeout_s = min(_HANDSHAKE_S, timeout_s) if tls is not None else None
        self._on_error = on_error  # called for each connection without a file descriptor
        self._spare = (
            _open_spare()
        )  # descriptor closed for a moment to answer where there is no other
        self.handshaking: set[asyncio.Task[None]] = set()
        self._sockets = [socket.socket(fileno=os.dup(one.fileno())) for one in server.sockets]
        for one in self._sockets:
            one.setblocking(False)
            one.listen(_BACKLOG)
            self._loop.add_reader(one, self._accept, one)

    def close(self) -> None:
        """Stop listening. Connections in the system's queue, which closing would reset, are accepted."""
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            with contextlib.suppress(OSError):  # there are no more
                for _ in range(_BACKLOG):
                    self._serve(*listening.accept())
            listening.close()
        self._close_spare()
        self._server.close()

    def _accept(self, listening: socket.socket) -> None:
        """Accept a batch; the event loop calls again for the next, after it has served other events."""
        for _ in range(_BATCH):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, ConnectionAbortedError):  # no more, or closed by its client
                return
            except OSError as error:  # no more descriptors, or no memory for sockets
                self._on_shortage(listening, error)
                return
            self._serve(accepted, address)

    def _serve(self, accepted: socket.socket, address: tuple[object, ...]) -> None:
        """Count an accepted connection and start its handshake, or refuse it."""
        accepted.setblocking(False)
        connection = self._protocol()
        tasks: list[asyncio.Task[None]] = []  # cancelled to end the handshake
        cancel = _no_handshake if self._tls is None else lambda: [task.cancel() for task in tasks]
        if not self._connections.enter(connection, str(address[0]), cancel):
            self._refuse(accepted, GatewayFull("this gateway has too many connections"))
            return
        task = self._loop.create_task(self._shake_hands(accepted, connection))
        tasks.append(task)
        self.handshaking.add(task)
        task.add_done_callback(self.handshaking.discard)

    def _on_shortage(self, listening: socket.socket, error: OSError) -> None:
        """Answer one client by means of the spare descriptor; pause where that fails."""
        self._on_error(error)
        if error.errno in {errno.EMFILE, errno.ENFILE} and self._close_spare():
            with contextlib.suppress(OSError):
                accepted, _ = listening.accept()
                self._refuse(accepted, GatewayFull("this gateway has no file descriptor left"))
        self._spare = _open_spare()
        if self._spare is None:
            self._loop.remove_reader(listening)
            self._loop.call_later(_PAUSE_S, self._resume, listening)

    def _resume(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0:  # not closed meanwhile
            self._loop.add_reader(listening, self._accept, listening)

    def _close_spare(self) -> bool:
        spare, self._spare = self._spare, None
        if spare is not None:
            os.close(spare)
        return spare is not None

    def _refuse(self, accepted: socket.socket, error: GatewayFull) -> None:
        """Respond with `error` and close; with TLS, before a handshake, only close."""
        with contextlib.suppress(OSError), accepted:
            if self._tls is None:
                accepted.setblocking(False)
                accepted.send(_response(error))
                accepted.shutdown(socket.SHUT_WR)
                # Unread bytes would reset the connection, and the response would be lost.
                accepted.recv(_DISCARDED_LEN)

    async def _shake_hands(self, accepted: socket.socket, connection: ClientConnection) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=self._timeout_s,
            )
        except BaseException as error:
            self._connections.discard(connection)
            with contextlib.suppress(OSError):
                accepted.close()
            if not isinstance(error, OSError | TimeoutError):  # errors of TLS are OSErrors
                raise


def _no_handshake() -> None:
    """Without TLS the connection is open in a moment, and can be turned away then."""


def _open_spare() -> int | None:
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _response(error: GatewayFull) -> bytes:
    body, retry_after_s = openai_error(error, error.status), retry_after(error, error.status)
    return (
        b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\nretry-after: %d\r\nconnection: close\r\n\r\n%b"
        % (len(body), retry_after_s or 1, body)
    )
