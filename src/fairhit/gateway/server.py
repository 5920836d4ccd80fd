"""Gateway: serves client connections, passes requests to the dispatcher, and keeps the engine pool."""

import asyncio
import logging
import random
from collections.abc import Callable
from itertools import cycle

from fairhit.core.service import Weights
from fairhit.dispatch import Dispatcher, Ticket
from fairhit.errors import ConfigError, MethodNotAllowed, NoEngine, NotFound
from fairhit.gateway.admin.control import PATHS, Control
from fairhit.gateway.admin.status import Admin
from fairhit.gateway.api.endpoints import path_of
from fairhit.gateway.auth.access_control import AccessControl
from fairhit.gateway.auth.header_options import HeaderOptions
from fairhit.gateway.factory import make_identity, make_router, make_store, queue_rules
from fairhit.gateway.http.accept import descriptors
from fairhit.gateway.http.accept.connections import TICK_GROUPS, Connections
from fairhit.gateway.http.accept.descriptors import Descriptors
from fairhit.gateway.http.accept.listeners import Listeners
from fairhit.gateway.http.client_connection import ClientConnection
from fairhit.gateway.http.head_cache import HeadCache
from fairhit.gateway.http.read_budget import ReadBudget
from fairhit.gateway.http.response_head import date_line
from fairhit.gateway.observability.log_exceptions import log_exceptions
from fairhit.gateway.observability.metrics.cache_metrics import CacheMetrics
from fairhit.gateway.observability.metrics.gateway_metrics import ConnectionMetrics, GatewayMetrics
from fairhit.gateway.observability.observability import Observability
from fairhit.gateway.observability.page.dashboard import DATA
from fairhit.gateway.pool.engine_pool import EnginePool
from fairhit.gateway.pool.load_monitor import LoadMonitor
from fairhit.gateway.pool.own_address import is_own
from fairhit.gateway.pool.retry import Retries
from fairhit.gateway.prefix.engine_caches import EngineCaches
from fairhit.gateway.process.reload import changed_while_running
from fairhit.gateway.process.sharing.ledger_exchange import LedgerExchange
from fairhit.gateway.proxy.admission import Admission
from fairhit.gateway.proxy.exchange import Exchange
from fairhit.gateway.proxy.incoming_request import BodyBudget, IncomingRequest, RequestHead
from fairhit.gateway.proxy.interfaces import OngoingRequest
from fairhit.gateway.settings import GatewaySettings

_log = logging.getLogger(__name__)

# For the last responses to be sent.
_FLUSH_S = 1.0


class Gateway:
    """The gateway: `await start()`, serve, `await stop()`. Engines may be added and removed meanwhile.

    `memory`: descriptor of the file with the ledger that the processes of one gateway share, without Redis.
    """

    def __init__(self, settings: GatewaySettings, memory: int | None = None) -> None:
        self.settings = settings
        self.port = settings.port  # 0: chosen by the system once the gateway listens
        self._set_limits(settings)
        self.connections: Connections[ClientConnection] = Connections(
            limit=self._client_slots, address_limit=lambda: self.settings.max_address_connections
        )
        self.descriptors = Descriptors(
            descriptors.limit(),
            clients=lambda: self.connections.total,
            close_one=self.connections.close_one,
            close_idle=lambda: self.pool.close_idle(),  # noqa: PLW0108 - made below
        )
        self.body_budget = BodyBudget()
        self.head_cache: HeadCache[RequestHead] = HeadCache()
        self._identity = make_identity(settings, settings.keys())
        weights = Weights(settings.weights)
        self.read_budget = ReadBudget()
        self.date = date_line()
        self._caches = EngineCaches(settings, is_adapter=self._is_adapter)
        self.dispatcher = Dispatcher(
            router=make_router(settings, weights),
            index=self._caches.index,
            max_in_flight=settings.max_client_requests,
            max_sent=settings.max_sent(),
            named=settings.metrics_max_clients,
            rules=queue_rules(settings, weights),
            on_ready=self._send,
            on_hold=self._hold,
        )
        self.pool = EnginePool(
            dispatcher=self.dispatcher,
            move=self._move,
            settings=settings,
            descriptors=self.descriptors,
            read_budget=self.read_budget,
            is_own=lambda url: is_own(url, host=self.settings.host, port=self.port),
        )
        self._load_monitor = LoadMonitor(
            dispatcher=self.dispatcher, engine=self.pool.engine, settings=settings
        )
        self._retries = Retries(settings.retry_rules(), random.Random())
        self._ledger_exchange = LedgerExchange(
            self.dispatcher, make_store(settings, memory), settings
        )
        self._make_observability(settings)
        self.exchanges: dict[Ticket, Exchange] = {}
        self._admission = self._make_admission(settings)
        self.on_answer_text = self._admission.index_answer
        self._stopping = False
        self._listeners = Listeners(settings)
        self.metrics_port: int | None = (
            None  # set once the gateway listens, if metrics have their own port
        )
        self._options = HeaderOptions.wanted(settings)
        self._access_control = self._make_access_control()
        self._ticker: asyncio.Task[None] | None = None

    def _make_admission(self, settings: GatewaySettings) -> Admission:
        return Admission(
            services=self,
            dispatcher=self.dispatcher,
            identity=self._identity,
            settings=settings,
            list_again=self.pool.catalog.refresh,
            read_budget=self.read_budget,
            tokenizer=self._caches.tokenizer,
            index=self._caches.tokens,
        )

    def _set_limits(self, settings: GatewaySettings) -> None:
        """Set the limits that connections and exchanges read, at the start and after a reload."""
        self.max_payload_size = settings.max_payload_size
        self.client_timeout_s = settings.client_timeout_secs
        self.first_byte_timeout_s = settings.first_byte_timeout_secs
        self.idle_timeout_s = settings.idle_timeout_secs

    def _make_observability(self, settings: GatewaySettings) -> None:
        """Make metrics, page, logs, and the admin API."""
        self._observability = Observability(
            dispatcher=self.dispatcher, watches=self.pool.watches, settings=settings
        )
        self.on_finished, self.refused = (
            self._observability.record,
            self._observability.record_refused,
        )
        self.trace, self.reopen = self._observability.trace, self._observability.reopen
        self._metrics = GatewayMetrics(
            self.dispatcher,
            self._observability.recorder,
            self._observability.snapshots,
            self.pool.watches,
            retries=self._retries,
        )
        self.count = self._metrics.count
        self._metrics.add(CacheMetrics(self.dispatcher.estimates, self._caches))
        self._metrics.add(self._ledger_exchange)
        self._metrics.add(ConnectionMetrics(self.connections, self._client_slots))
        self._admin = Admin(
            dispatcher=self.dispatcher,
            workers=self.pool,
            metrics=self._metrics,
            observability=self._observability,
            has_metrics=settings.prometheus_port is None,
        )
        self.control = Control(dispatcher=self.dispatcher, workers=self.pool, settings=settings)

    def _make_access_control(self) -> AccessControl:
        """Make access control by the current keys."""
        identity = self._identity
        passes_key = not identity.needs_key and self.settings.worker_api_key is None
        return AccessControl(
            identity=identity,
            check_operator=self.control.check_key,
            options=self._options,
            passes_key=passes_key,
        )

    # -- life

    async def start(self) -> None:
        """Listen, and begin to watch the engines. Raises ConfigError if the address is taken."""
        settings = self.settings
        self._loop = asyncio.get_running_loop()
        self._caches.start()
        for url, model in settings.engines().items():
            self.pool.add(url, model=model)
        try:
            self.port, self.metrics_port = await self._listeners.open(
                lambda: ClientConnection(self),
                self._metrics.exposition,
                self.connections,
                on_error=self._on_shortage,
            )
        except ConfigError:
            await self.pool.close()
            self._caches.close()
            raise
        self._ticker = self._loop.create_task(self._tick())
        self._load_monitor.start()
        self._ledger_exchange.start()

    async def stop(self) -> None:
        """Stop accepting, finish the requests under way within the time limit of the settings, and close."""
        assert self._ticker is not None, "not started"
        if self._stopping:
            return
        self._stopping = True
        # Load balancers in front have yet to notice by their health checks; requests are served until then.
        await asyncio.sleep(self.settings.drain_delay_secs)
        await self._listeners.close()
        for connection in self.connections:
            connection.finish()
        ends_s = self._loop.time() + self.settings.shutdown_timeout_secs
        while self.connections and self._loop.time() < ends_s:
            await asyncio.sleep(0.02)
        for connection in self.connections:
            connection.cut(NoEngine("the gateway is shutting down"))
        ends_s = self._loop.time() + _FLUSH_S
        while self.connections and self._loop.time() < ends_s:
            await asyncio.sleep(0.02)
        for connection in self.connections:
            connection.abort()
        self._ticker.cancel()
        self._load_monitor.close()
        await self._ledger_exchange.close()
        self._admission.close()
        await self.pool.close()
        self._caches.close()
        await self._observability.close()

    def apply(self, settings: GatewaySettings) -> None:
        """Use other settings. Raises ConfigError, and changes nothing then."""
        old = self.settings
        identity = make_identity(settings, settings.keys())
        if self._identity.needs_key and not identity.needs_key:
            raise ConfigError(
                "no tenant has a key any more: only a restart opens the gateway to all"
            )
        self.pool.check(settings.worker_urls)
        self._listeners.refresh()
        new, changed = changed_while_running(old, settings)
        self.settings, self._identity = new, identity
        self._set_limits(new)
        weights = Weights(new.weights) if "weights" in changed else None
        self.dispatcher.change(
            max_in_flight=new.max_client_requests, max_sent=new.max_sent(), weights=weights
        )
        self._retries.rules = new.retry_rules()
        self._admission.change(new, self._identity)
        self.control.change(new)
        self._access_control = self._make_access_control()
        self.pool.change(new)
        logging.getLogger("fairhit").setLevel(new.level())
        for url, model in new.engines().items():
            if url not in old.worker_urls or old.engines()[url] != model:
                self.pool.add(url, model=model)
        for url in old.worker_urls:
            if url not in new.worker_urls and url in self.pool:
                self.pool.drain_when_replaced(url)
        _log.info("settings are reloaded; changed: %s", ", ".join(changed) or "nothing named")

    async def _tick(self) -> None:
        for number in cycle(range(TICK_GROUPS)):
            await asyncio.sleep(min(1.0, self.client_timeout_s / 2) / TICK_GROUPS)
            now = self._loop.time()
            for connection in self.connections.tick_group(number):
                log_exceptions(connection.tick, now)
            if number == 0:
                self.date = date_line()
                log_exceptions(self._retries.tick, now, self._admission.count)
                log_exceptions(self.pool.tick, now)
                log_exceptions(self._observability.tick)
                self._listeners.tick(now)

    # -- for client connections

    def _client_slots(self) -> int:
        """Slots for client connections now."""
        return self.descriptors.client_slots(self.settings.max_connections)

    def _on_shortage(self, error: OSError) -> None:
        """A connection could not be accepted for want of a file descriptor, or of memory."""
        self.descriptors.ran_out(error)
        self.connections.turned_away["descriptors"] += 1
        self.descriptors.free_one()

    def admit(self, request: IncomingRequest) -> bool:
        return self._access_control.admit(request)

    def handle(
        self, connection: ClientConnection, request: IncomingRequest
    ) -> OngoingRequest | None:
        head = request.head
        if head.endpoint is None:
            self._answer_admin(connection, request, path_of(head.target))
            return None
        if head.method != b"POST":
            self._answer_other(connection, request, "POST")
            return None
        self.dispatcher.check_limit()  # before its body is parsed
        return self._admission.begin(connection, request, head.endpoint)

    def _answer_other(
        self, connection: ClientConnection, request: IncomingRequest, allow: str
    ) -> None:
        """Answer the preflight of a browser; all other methods are refused."""
        lines = self._options.preflight(request) if self._options is not None else None
        if lines is None:
            raise MethodNotAllowed(allow)
        connection.write_body(b"", b"text/plain", lines=lines)

    def _answer_admin(
        self, connection: ClientConnection, request: IncomingRequest, path: bytes
    ) -> None:
        if path in PATHS:
            self.control.authorize(request, connection.peer())
            status, body = self.control.answer(request, path)
            connection.write_json(body, status=status)
            return
        if path == DATA:
            self.control.authorize(request, connection.peer())
        answer = self._admin.answer(path, request.head.target, stopping=self._stopping)
        if answer is None:
            raise NotFound(f"no such path: {path.decode('ascii', 'replace')}")
        if request.head.method not in {b"GET", b"HEAD"}:
            self._answer_other(connection, request, "GET")
            return
        status, content_type, body, lines = answer
        connection.write_body(body, content_type, status=status, lines=lines)

    # -- for exchanges

    def may_retry(self, ticket: Ticket, *, spends: bool) -> bool:
        retry, now = len(ticket.tried) + 1, self._loop.time()
        return self._retries.grant(retry, spends=spends, now=now, requests=self._admission.count)

    def retry_later(self, ticket: Ticket, send: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(self._retries.wait_s(len(ticket.tried)), send)

    def _send(self, ticket: Ticket) -> None:
        """An engine has free capacity for a waiting request."""
        log_exceptions(self.exchanges[ticket].send)

    def _hold(self, ticket: Ticket, longest_us: int) -> None:
        """A waiting request is held for the engine that has its prompt cached."""
        self._loop.call_later(longest_us / 1e6, self.dispatcher.hold_over, ticket)

    def _is_adapter(self, model: str) -> bool:
        """True if `model` is a LoRA adapter: engines list adapters with their parent model."""
        return any(one.get("id") == model and one.get("parent") for one in self.pool.models())

    def _move(self, ticket: Ticket) -> None:
        exchange = self.exchanges.get(ticket)
        if exchange is not None:  # moving one exchange may have ended another
            exchange.move()
