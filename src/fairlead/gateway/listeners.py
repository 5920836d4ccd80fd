"""The ports: one for callers, perhaps with TLS, and perhaps one of its own for metrics."""

import asyncio
from collections.abc import Callable
from ssl import SSLContext

from fairlead.errors import ConfigError, MethodNotAllowed, NotFound
from fairlead.gateway.caller import CallerConnection
from fairlead.gateway.guarded import guarded
from fairlead.gateway.incoming import Arrived, Incoming
from fairlead.gateway.repeated import KnownHeads
from fairlead.gateway.settings import GatewaySettings
from fairlead.gateway.surface import path_of
from fairlead.gateway.tls import OwnCertificate

# Scrapers and probes; whoever opens more is neither.
_MAX_SCRAPERS = 64
_METRICS = b"text/plain; version=0.0.4; charset=utf-8"


class Listeners:
    """What is listened on, from `open` to `close`. Raises ConfigError for a wrong certificate."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._servers: list[asyncio.Server] = []
        self._page: MetricsPage | None = None
        self._certificate: OwnCertificate | None = None
        if settings.tls_cert_path is not None and settings.tls_key_path is not None:
            self._certificate = OwnCertificate(settings.tls_cert_path, settings.tls_key_path)

    async def open(
        self, callers: Callable[[], CallerConnection], metrics: Callable[[], bytes]
    ) -> tuple[int, int | None]:
        """Listen; the port for callers, and the one for metrics. Raises ConfigError."""
        settings = self._settings
        tls = self._certificate.context if self._certificate is not None else None
        port = await self._listen("--port", settings.host, settings.port, callers, tls=tls)
        if settings.prometheus_port is None:
            return port, None
        page = self._page = MetricsPage(metrics, client_timeout_s=settings.client_timeout_secs)
        host = settings.prometheus_host or settings.host
        more = await self._listen(
            "--prometheus-port", host, settings.prometheus_port, lambda: CallerConnection(page)
        )
        return port, more

    def refresh(self) -> None:
        """Read the certificate again. Raises ConfigError, and then goes on with the old one."""
        if self._certificate is not None:
            self._certificate.refresh()

    def tick(self, now: float) -> None:
        """A second has passed: who asks for metrics has limits on time, too."""
        if self._page is not None:
            for connection in list(self._page.connections):
                guarded(connection.tick, now)

    def close(self) -> None:
        """Take no more connections, and leave those that only ask for metrics."""
        for server in self._servers:
            server.close()
        if self._page is not None:
            for connection in list(self._page.connections):
                connection.close()

    async def _listen(
        self,
        flag: str,
        host: str,
        port: int,
        protocol: Callable[[], asyncio.Protocol],
        *,
        tls: SSLContext | None = None,
    ) -> int:
        loop = asyncio.get_running_loop()
        patience_s = self._settings.client_timeout_secs if tls is not None else None
        try:
            server = await loop.create_server(
                protocol, host, port, backlog=1024, ssl=tls, ssl_handshake_timeout=patience_s
            )
        except OSError as error:
            self.close()
            raise ConfigError(f"{flag}: cannot listen on {host}:{port}: {error.strerror}") from None
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])


class MetricsPage:
    """The site of the port for metrics: `/metrics`, and `/health` for whoever probes it."""

    max_payload_size = 0

    def __init__(self, metrics: Callable[[], bytes], *, client_timeout_s: float) -> None:
        self.client_timeout_s = client_timeout_s
        self.arrived = Arrived()
        self.known_heads: KnownHeads[Incoming] = KnownHeads()
        self._metrics = metrics
        self.connections: set[CallerConnection] = set()

    def opened(self, connection: CallerConnection) -> bool:
        self.connections.add(connection)
        return len(self.connections) <= _MAX_SCRAPERS

    def closed(self, connection: CallerConnection) -> None:
        self.connections.discard(connection)

    def refused(self, request: Incoming, status: int) -> None:
        """Nobody counts these."""

    def count(self, status: int) -> None:
        """These are not answers to callers."""

    def admit(self, request: Incoming) -> bool:
        return False

    def handle(self, connection: CallerConnection, request: Incoming) -> None:
        path = path_of(request.target)
        if path not in {b"/metrics", b"/health"}:
            raise NotFound("this port has /metrics")
        if request.method not in {b"GET", b"HEAD"}:
            raise MethodNotAllowed("GET")
        if path == b"/health":
            connection.write_json(b'{"status":"ok"}')
        else:
            connection.write_body(self._metrics(), _METRICS)
