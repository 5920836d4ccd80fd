"""The gateway: accepts callers, hands their requests to the dispatcher, keeps the engines in sight."""

import asyncio
import gc
import logging
import random
import resource
import signal
from collections.abc import Callable

import uvloop

from fairlead.core.chunk_index import ChunkIndex
from fairlead.core.protocols import Router
from fairlead.core.request import WorkerId
from fairlead.core.service import Weights
from fairlead.dispatch import Dispatcher, QueueRules, Ticket
from fairlead.errors import BadRequest, CallerError, ConfigError, NotFound
from fairlead.gateway.admin import Admin
from fairlead.gateway.caller import CallerConnection, Work
from fairlead.gateway.exchange import Exchange
from fairlead.gateway.host import Timer
from fairlead.gateway.identity import Identity
from fairlead.gateway.incoming import Arrived, Incoming
from fairlead.gateway.intake import Intake
from fairlead.gateway.loads import Loads
from fairlead.gateway.observability import Observability
from fairlead.gateway.repeated import KnownHeads
from fairlead.gateway.retry import Retries
from fairlead.gateway.settings import GatewaySettings, parse_worker_url
from fairlead.gateway.surface import path_of, surface_of
from fairlead.gateway.upstream import Engine, Fault
from fairlead.gateway.workers import Workers
from fairlead.routers import ROUTERS
from fairlead.routers.d2lpm import D2LPM

_log = logging.getLogger(__name__)


class MethodNotAllowed(CallerError):
    """405."""

    status = 405


class Gateway:
    """One gateway: `await start()`, serve, `await stop()`. Engines may come and go meanwhile."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.settings = settings
        self.port = settings.port  # if that is 0, known once it listens
        self.max_payload_size = settings.max_payload_size
        self.client_timeout_s = settings.client_timeout_secs
        self.first_byte_timeout_s = settings.first_byte_timeout_secs
        self.idle_timeout_s = settings.idle_timeout_secs
        self.arrived = Arrived()
        self.known_heads: KnownHeads[Incoming] = KnownHeads()
        keys = settings.keys()
        self._identity = Identity(
            keys=keys,
            trust_tenant_header=settings.trust_tenant_header,
            identify_by_user=settings.identify_by_user,
        )
        weights = Weights(settings.weights)
        self.dispatcher = Dispatcher(
            router=_make_router(settings, weights),
            index=ChunkIndex(capacity=settings.max_tree_size),
            max_in_flight=settings.max_client_requests,
            rules=queue_rules(settings, weights),
            on_ready=self._send,
        )
        self._workers = Workers(
            dispatcher=self.dispatcher,
            move=self._move,
            settings=settings,
        )
        self._loads = Loads(
            dispatcher=self.dispatcher,
            engine=self._workers.engine,
            detects=settings.queue == "auto",
            interval_s=settings.load_interval_secs,
        )
        self._retries = Retries(settings.retry_rules(), random.Random())
        self._observability = Observability(self.dispatcher)
        self._admin = Admin(
            dispatcher=self.dispatcher,
            workers=self._workers,
            observability=self._observability,
            policy=settings.policy,
        )
        self._connections: set[CallerConnection] = set()
        self._exchanges: dict[Ticket, Exchange] = {}
        self._intake = Intake(
            host=self, dispatcher=self.dispatcher, identity=self._identity, settings=settings
        )
        self._stopping = False
        self._server: asyncio.Server | None = None
        self._ticker: asyncio.Task[None] | None = None

    # -- life

    async def start(self) -> None:
        """Listen, and begin to watch the engines. Raises ConfigError if the address is taken."""
        settings = self.settings
        self._loop = asyncio.get_running_loop()
        for url in settings.worker_urls:
            self._workers.add(url)
        try:
            self._server = await self._loop.create_server(
                lambda: CallerConnection(self), settings.host, settings.port, backlog=1024
            )
        except OSError as error:
            await self._workers.close()
            where = f"{settings.host}:{settings.port}"
            raise ConfigError(f"--port: cannot listen on {where}: {error.strerror}") from None
        self.port = int(self._server.sockets[0].getsockname()[1])
        self._ticker = self._loop.create_task(self._tick())
        if settings.queue != "engine":
            self._loads.start()

    async def stop(self) -> None:
        """Take no more, finish what is under way for as long as the settings allow, close."""
        assert self._server is not None and self._ticker is not None, "not started"
        if self._stopping:
            return
        self._stopping = True
        self._server.close()
        for connection in list(self._connections):
            connection.finish()
        patience_ends = self._loop.time() + self.settings.shutdown_timeout_secs
        while self._connections and self._loop.time() < patience_ends:
            await asyncio.sleep(0.02)
        for connection in list(self._connections):
            connection.abort()
        self._ticker.cancel()
        self._loads.close()
        self._intake.close()
        await self._workers.close()

    def add_worker(self, url: str) -> None:
        """Use the engine at `url` from its first healthy answer on. Raises ConfigError."""
        try:
            self._workers.add(parse_worker_url(url))
        except ValueError as error:
            raise ConfigError(f"worker {url}: {error}") from None

    def remove_worker(self, url: str) -> None:
        """Stop using the engine at `url`: what waits there moves, what streams goes on."""
        url = parse_worker_url(url)
        if url in self._workers:
            self._workers.remove(url)

    def ready(self) -> bool:
        """Whether an engine is usable."""
        return self.dispatcher.ready()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(min(1.0, self.client_timeout_s / 2))
            now = self._loop.time()
            self._retries.budget.tick(now, self._intake.count)
            self._workers.tick(now)
            for connection in list(self._connections):
                connection.tick(now)

    # -- for the callers' connections

    def opened(self, connection: CallerConnection) -> bool:
        self._connections.add(connection)
        return len(self._connections) <= self.settings.max_connections

    def closed(self, connection: CallerConnection) -> None:
        self._connections.discard(connection)

    def count(self, status: int) -> None:
        self._observability.count(status)

    def admit(self, request: Incoming) -> bool:
        """Callers without a key are told so before their bodies are in memory."""
        request.surface = surface_of(request.target)
        wants_body = request.surface is not None
        if wants_body or path_of(request.target).startswith(b"/v1/models"):
            identity = self._identity
            if request.tenant_twice and identity.trusts_header:
                raise BadRequest("a tenant header came more than once")
            request.client = identity.authenticate(request.key(), request.tenant)
        return wants_body

    def handle(self, connection: CallerConnection, request: Incoming) -> Work | None:
        if request.surface is None:
            self._answer_admin(connection, request, path_of(request.target))
            return None
        if request.method != b"POST":
            raise MethodNotAllowed("this path takes POST")
        return self._intake.begin(connection, request, request.surface)

    def _answer_admin(self, connection: CallerConnection, request: Incoming, path: bytes) -> None:
        answer = self._admin.answer(path, stopping=self._stopping)
        if answer is None:
            raise NotFound(f"no such path: {path.decode('ascii', 'replace')}")
        if request.method not in {b"GET", b"HEAD"}:
            raise MethodNotAllowed("this path takes GET")
        status, content_type, body = answer
        connection.write_body(body, content_type, status=status)

    # -- for the exchanges

    def engine(self, worker: WorkerId) -> Engine:
        return self._workers.engine(worker)

    def unreachable(self, worker: WorkerId) -> None:
        self._workers.lost(worker)

    def failing(self, worker: WorkerId, fault: Fault) -> None:
        self._workers.failing(worker, fault)

    def tried(self, worker: WorkerId) -> None:
        self._workers.tried(worker)

    def may_retry(self, ticket: Ticket, *, spends: bool) -> bool:
        retry, now = len(ticket.tried) + 1, self._loop.time()
        return self._retries.grant(retry, spends=spends, now=now, requests=self._intake.count)

    def retry_later(self, ticket: Ticket, send: Callable[[], None]) -> Timer:
        return self._loop.call_later(self._retries.wait_s(len(ticket.tried)), send)

    def said(self, exchange: Exchange, answer: str) -> None:
        self._intake.said(exchange, answer)

    def began(self, exchange: Exchange) -> None:
        self._exchanges[exchange.ticket] = exchange

    def ended(self, exchange: Exchange) -> None:
        del self._exchanges[exchange.ticket]

    def _send(self, ticket: Ticket) -> None:
        """An engine has room for one that waited."""
        self._exchanges[ticket].send()

    def _move(self, ticket: Ticket) -> None:
        exchange = self._exchanges.get(ticket)
        if exchange is not None:  # moving one may have ended another
            exchange.move()


def queue_rules(settings: GatewaySettings, weights: Weights) -> QueueRules | None:
    """How requests queue here; None: they do not. Raises ConfigError."""
    if settings.queue == "engine":
        return None
    return QueueRules(
        scheduler=settings.scheduler,
        quantum=settings.quantum,
        weights=weights,
        queue_size=settings.queue_size,
        window=settings.max_engine_requests,
    )


def _make_router(settings: GatewaySettings, weights: Weights) -> Router:
    if settings.policy == "d2lpm":
        return D2LPM(
            quantum=settings.worker_quantum,
            weights=weights,
            charge=settings.worker_charge,
            min_match=settings.min_match,
        )
    return ROUTERS[settings.policy]()


async def serve(settings: GatewaySettings) -> None:
    """Serve until SIGTERM or SIGINT."""
    gateway = Gateway(settings)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await gateway.start()
    _log.info("listening on http://%s:%d", settings.host, gateway.port)
    await stop.wait()
    await gateway.stop()


def run(settings: GatewaySettings) -> int:
    """`serve` in a process of its own; the exit status."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    # Requests leave no cycles behind: look for garbage rarely, and never among what is loaded.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    _raise_file_limit()
    uvloop.run(serve(settings))
    return 0


def _raise_file_limit() -> None:
    """Each request holds two connections; without descriptors engines would seem unreachable."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
