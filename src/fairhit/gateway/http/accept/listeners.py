"""Listening addresses: one for clients, perhaps with TLS, and perhaps one of its own for metrics."""

import asyncio
import contextlib
from collections.abc import Callable

from fairhit.errors import ConfigError, MethodNotAllowed, NotFound
from fairhit.gateway.api.endpoints import path_of
from fairhit.gateway.http.accept.accept_loop import AcceptLoop
from fairhit.gateway.http.accept.connections import Connections
from fairhit.gateway.http.accept.tls import OwnCertificate
from fairhit.gateway.http.client_connection import ClientConnection
from fairhit.gateway.http.head_cache import HeadCache
from fairhit.gateway.http.read_budget import ReadBudget
from fairhit.gateway.http.response_head import date_line
from fairhit.gateway.observability.log_exceptions import log_exceptions
from fairhit.gateway.proxy.incoming_request import BodyBudget, IncomingRequest, RequestHead
from fairhit.gateway.settings import GatewaySettings

# Connections to the port for metrics: scrapers and probes.
_MAX_SCRAPERS = 64
# Time for the last handshakes, of which only slow ones take any; and for requests sent at once to be read.
_HANDSHAKES_S, _READING_S = 1.0, 0.02
_METRICS = b"text/plain; version=0.0.4; charset=utf-8"


class Listeners:
    """Listening addresses, from `open` to `close`. Raises ConfigError for a wrong certificate."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._accept_loops: list[AcceptLoop] = []
        self._page: MetricsPage | None = None
        self._certificate: OwnCertificate | None = None
        if settings.tls_cert_path is not None and settings.tls_key_path is not None:
            self._certificate = OwnCertificate(settings.tls_cert_path, settings.tls_key_path)

    async def open(
        self,
        protocol: Callable[[], ClientConnection],
        metrics: Callable[[], bytes],
        connections: Connections[ClientConnection],
        *,
        on_error: Callable[[OSError], object] = lambda _: None,
    ) -> tuple[int, int | None]:
        """Listen; returns the port for clients and the port for metrics. Raises ConfigError.

        `connections` counts the clients; `on_error` is called for each without a file descriptor.
        """
        settings = self._settings
        port = await self._listen(
            "--port", settings.host, settings.port, protocol,
            connections=connections, on_error=on_error, is_main=True,
        )  # fmt: skip
        if settings.prometheus_port is None:
            return port, None
        page = self._page = MetricsPage(metrics, client_timeout_s=settings.client_timeout_secs)
        host = settings.prometheus_host or settings.host
        metrics_port = await self._listen(
            "--prometheus-port", host, settings.prometheus_port, lambda: ClientConnection(page),
            connections=page.connections, on_error=on_error,
        )  # fmt: skip
        return port, metrics_port

    def refresh(self) -> None:
        """Read the certificate again. Raises ConfigError, and keeps the old one then."""
        if self._certificate is not None:
            self._certificate.refresh()

    def tick(self, now: float) -> None:
        """Enforce the time limits of connections to the port for metrics; called once a second."""
        if self._page is not None:
            self._page.date = date_line()
            for connection in list(self._page.connections):
                log_exceptions(connection.tick, now)

    async def close(self) -> None:
        """Accept no more connections, and close those to the port for metrics.

        Clients that have connected before, and perhaps sent a request, are served when this returns.
        """
        for accept_loop in self._accept_loops:
            accept_loop.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_HANDSHAKES_S):
                tasks = [task for loop in self._accept_loops for task in loop.handshaking]
                await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(_READING_S)
        if self._page is not None:
            for connection in list(self._page.connections):
                connection.close()

    async def _listen(
        self,
        flag: str,
        host: str,
        port: int,
        protocol: Callable[[], ClientConnection],
        *,
        connections: Connections[ClientConnection],
        on_error: Callable[[OSError], object],
        is_main: bool = False,
    ) -> int:
        """Listen on one address. The main port has TLS with a certificate, and is shared by processes."""
        settings, tls = self._settings, None
        if is_main and self._certificate is not None:
            tls = self._certificate.context
        shares_port = is_main and settings.processes > 1
        try:
            server = await asyncio.get_running_loop().create_server(
                protocol, host, port, reuse_port=shares_port or None, start_serving=False
            )
            accept_loop = AcceptLoop(
                server, protocol=protocol, connections=connections, tls=tls,
                timeout_s=settings.client_timeout_secs, on_error=on_error,
            )  # fmt: skip
        except OSError as error:
            await self.close()
            raise ConfigError(f"{flag}: cannot listen on {host}:{port}: {error.strerror}") from None
        self._accept_loops.append(accept_loop)
        return int(server.sockets[0].getsockname()[1])


class MetricsPage:
    """The site of the port for metrics: `/metrics`, and `/health` for probes."""

    max_payload_size = 0

    def __init__(self, metrics: Callable[[], bytes], *, client_timeout_s: float) -> None:
        self.client_timeout_s = client_timeout_s
        self.body_budget = BodyBudget()
        self.head_cache: HeadCache[RequestHead] = HeadCache()
        self.read_budget = ReadBudget()
        self.date = date_line()
        self._metrics = metrics
        self.connections: Connections[ClientConnection] = Connections(
            limit=lambda: _MAX_SCRAPERS, setting="the port for metrics"
        )

    def refused(self, request: IncomingRequest, status: int) -> None:
        """Not logged: this is no request of a client's."""

    def count(self, status: int) -> None:
        """Not counted: this is no response to a client."""

    def admit(self, request: IncomingRequest) -> bool:
        return False

    def handle(self, connection: ClientConnection, request: IncomingRequest) -> None:
        path = path_of(request.head.target)
        if path not in {b"/metrics", b"/health"}:
            raise NotFound("this port has /metrics")
        if request.head.method not in {b"GET", b"HEAD"}:
            raise MethodNotAllowed("GET")
        if path == b"/health":
            connection.write_json(b'{"status":"ok"}')
        else:
            connection.write_body(self._metrics(), _METRICS)
