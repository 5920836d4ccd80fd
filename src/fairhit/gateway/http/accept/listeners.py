"""The ports: one for callers, perhaps with TLS, and perhaps one of its own for metrics."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass

from fairhit.errors import ConfigError, MethodNotAllowed, NotFound
from fairhit.gateway.api.endpoints import path_of
from fairhit.gateway.http.accept.accept_loop import Entrance, Lobby
from fairhit.gateway.http.accept.connections import Connections
from fairhit.gateway.http.accept.tls import OwnCertificate
from fairhit.gateway.http.client_connection import CallerConnection
from fairhit.gateway.http.head_cache import HeadCache
from fairhit.gateway.http.read_budget import Turns
from fairhit.gateway.http.response_head import date_line
from fairhit.gateway.observability.log_exceptions import guarded
from fairhit.gateway.proxy.incoming_request import BodyBudget, Incoming, RequestHead
from fairhit.gateway.settings import GatewaySettings

# Scrapers and probes; whoever opens more is neither.
_MAX_SCRAPERS = 64
# Connected, and not let in yet.
_BACKLOG = 1024
# For the last of them to be let in, where only a slow handshake takes any time; and for what they sent
# at once to be read.
_DOOR_S, _READING_S = 1.0, 0.02
_METRICS = b"text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class _Door:
    """One address that is listened on, and who meets those that come in."""

    server: asyncio.Server
    entrance: Entrance

    def shut(self) -> None:
        """Take no more but those who have connected already, whom closing alone would cut off."""
        self.entrance.close()
        for listening in self.server.sockets:
            with socket.socket(fileno=os.dup(listening.fileno())) as own:
                own.setblocking(False)
                with contextlib.suppress(OSError):  # there are no more
                    for _ in range(_BACKLOG):
                        one, address = own.accept()
                        self.entrance.let_in(one, str(address[0]))
        self.server.close()


class Listeners:
    """What is listened on, from `open` to `close`. Raises ConfigError for a wrong certificate."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._doors: list[_Door] = []
        self._page: MetricsPage | None = None
        self._certificate: OwnCertificate | None = None
        if settings.tls_cert_path is not None and settings.tls_key_path is not None:
            self._certificate = OwnCertificate(settings.tls_cert_path, settings.tls_key_path)

    async def open(
        self,
        callers: Callable[[], CallerConnection],
        metrics: Callable[[], bytes],
        lobby: Lobby,
        *,
        short: Callable[[OSError], object] = lambda _: None,
    ) -> tuple[int, int | None]:
        """Listen; the port for callers, and the one for metrics. Raises ConfigError.

        `lobby` counts the callers, `short` is told of each for whom there is no file descriptor.
        """
        settings = self._settings
        port = await self._listen(
            "--port", settings.host, settings.port, callers, lobby=lobby, short=short, is_main=True
        )
        if settings.prometheus_port is None:
            return port, None
        page = self._page = MetricsPage(metrics, client_timeout_s=settings.client_timeout_secs)
        host = settings.prometheus_host or settings.host
        more = await self._listen(
            "--prometheus-port", host, settings.prometheus_port, lambda: CallerConnection(page),
            lobby=page.connections, short=short,
        )  # fmt: skip
        return port, more

    def refresh(self) -> None:
        """Read the certificate again. Raises ConfigError, and then goes on with the old one."""
        if self._certificate is not None:
            self._certificate.refresh()

    def tick(self, now: float) -> None:
        """A second has passed: who asks for metrics has limits on time, too."""
        if self._page is not None:
            self._page.date = date_line()
            for connection in list(self._page.connections):
                guarded(connection.tick, now)

    async def close(self) -> None:
        """Take no more connections, and leave those that only ask for metrics.

        Who has connected, and perhaps asked, before it begins is let in, and heard when it ends.
        """
        for door in self._doors:
            door.shut()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DOOR_S):
                entering = [task for door in self._doors for task in door.entrance.entering]
                await asyncio.gather(*entering, return_exceptions=True)
        await asyncio.sleep(_READING_S)
        if self._page is not None:
            for connection in list(self._page.connections):
                connection.close()

    async def _listen(
        self,
        flag: str,
        host: str,
        port: int,
        protocol: Callable[[], CallerConnection],
        *,
        lobby: Lobby,
        short: Callable[[OSError], object],
        is_main: bool = False,
    ) -> int:
        """The main port has TLS where there is a certificate, and is every process's."""
        settings, tls = self._settings, None
        if is_main and self._certificate is not None:
            tls = self._certificate.context
        shares_port = is_main and settings.processes > 1
        try:
            server = await asyncio.get_running_loop().create_server(
                protocol, host, port, reuse_port=shares_port or None, start_serving=False
            )
            entrance = Entrance(
                server.sockets, backlog=_BACKLOG, callers=protocol, lobby=lobby, tls=tls,
                patience_s=settings.client_timeout_secs, short=short,
            )  # fmt: skip
        except OSError as error:
            await self.close()
            raise ConfigError(f"{flag}: cannot listen on {host}:{port}: {error.strerror}") from None
        self._doors.append(_Door(server, entrance))
        return int(server.sockets[0].getsockname()[1])


class MetricsPage:
    """The site of the port for metrics: `/metrics`, and `/health` for whoever probes it."""

    max_payload_size = 0

    def __init__(self, metrics: Callable[[], bytes], *, client_timeout_s: float) -> None:
        self.client_timeout_s = client_timeout_s
        self.arrived = BodyBudget()
        self.head_cache: HeadCache[RequestHead] = HeadCache()
        self.turns = Turns()
        self.date = date_line()
        self._metrics = metrics
        self.connections = Connections(limit=lambda: _MAX_SCRAPERS, setting="the port for metrics")

    def opened(self, connection: CallerConnection) -> bool:
        return self.connections.add(connection)

    def asked(self, connection: CallerConnection) -> None:
        self.connections.asked(connection)

    def closed(self, connection: CallerConnection) -> None:
        self.connections.discard(connection)

    def refused(self, request: Incoming, status: int) -> None:
        """Nobody counts these."""

    def count(self, status: int) -> None:
        """These are not answers to callers."""

    def admit(self, request: Incoming) -> bool:
        return False

    def handle(self, connection: CallerConnection, request: Incoming) -> None:
        path = path_of(request.head.target)
        if path not in {b"/metrics", b"/health"}:
            raise NotFound("this port has /metrics")
        if request.head.method not in {b"GET", b"HEAD"}:
            raise MethodNotAllowed("GET")
        if path == b"/health":
            connection.write_json(b'{"status":"ok"}')
        else:
            connection.write_body(self._metrics(), _METRICS)
