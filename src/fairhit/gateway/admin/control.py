"""What an operator may look at and change while it runs: the engines, the scheduler.

Who may: whoever has the admin key; where none is set, only who calls from this machine, and neither
through a proxy nor from a web page, since either speaks for somebody else. Where a proxy is known to
be in front, which need not say that it is one, nobody changes anything without a key.
"""

import hmac
import logging
from collections.abc import Callable
from hashlib import sha256
from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import orjson

from fairhit.dispatch import Dispatcher, Engine
from fairhit.errors import (
    BadRequest,
    ConfigError,
    Forbidden,
    MethodNotAllowed,
    NotFound,
    Unauthorized,
)
from fairhit.gateway.api.endpoints import path_of
from fairhit.gateway.pool.engine_pool import EnginePool
from fairhit.gateway.pool.watched_engine import WatchedEngine
from fairhit.gateway.proxy.incoming_request import IncomingRequest, RequestHead
from fairhit.gateway.settings import GatewaySettings, parse_worker_url

_log = logging.getLogger(__name__)

# A list of methods for each path; HEAD goes with GET.
PATHS: dict[bytes, tuple[bytes, ...]] = {
    b"/workers": (b"GET", b"POST", b"DELETE"),
    b"/workers/drain": (b"POST",),
    b"/scheduler": (b"GET", b"POST"),
}
# Headers that say that somebody else is behind the peer.
_THROUGH_OTHERS = (b"forwarded:", b"x-forwarded-", b"x-real-ip:", b"via:", b"origin:")


class AdminAnswer(NamedTuple):
    """What goes back, as JSON."""

    status: int
    body: bytes


class Control:
    """Answers requests about `PATHS`."""

    def __init__(
        self, *, dispatcher: Dispatcher, workers: EnginePool, settings: GatewaySettings
    ) -> None:
        self._dispatcher = dispatcher
        self._workers = workers
        self._policy = settings.router()
        # Sends a change and its subject to the other processes of this gateway.
        self.on_change: Callable[[IncomingRequest, str], None] = _ignore
        self.change(settings)

    def change(self, settings: GatewaySettings) -> None:
        """Go on by other settings, of which key and proxy matter."""
        key = settings.admin_api_key
        self._key = _hashed(b"Bearer " + key.encode()) if key else None
        self._has_proxy = settings.trust_tenant_header

    def check_key(self, head: RequestHead) -> None:
        """Whether it shows the key, if there is one. Raises Unauthorized."""
        if self._key is not None:
            scheme, _, key = head.authorization.partition(b" ")
            shown = b"Bearer " + key.strip() if scheme.lower() == b"bearer" else b""
            if not hmac.compare_digest(_hashed(shown), self._key):
                raise Unauthorized("missing or invalid admin key")

    def authorize(self, request: IncomingRequest, peer: str | None) -> None:
        """Whether this caller may. Raises Unauthorized or Forbidden."""
        self.check_key(request.head)
        if self._key is None and not (
            _is_here(peer) and _names_here(request.head) and not _comes_through_others(request.head)
        ):
            raise Forbidden("only from this machine, as no --admin-api-key is set")
        if self._key is None and self._has_proxy and request.head.method not in {b"GET", b"HEAD"}:
            raise Forbidden("--trust-tenant-header: behind a proxy this takes an --admin-api-key")

    def answer(self, request: IncomingRequest, path: bytes) -> AdminAnswer:
        """Do what is asked, and tell of it. Raises CallerError."""
        answer = self._answer(request, path)
        if request.head.method not in {b"GET", b"HEAD"}:
            self.on_change(request, _about(request, path))
        return answer

    def repeat(self, request: IncomingRequest) -> None:
        """Do what was asked of another process. Raises CallerError."""
        self._answer(request, path_of(request.head.target))

    def _answer(self, request: IncomingRequest, path: bytes) -> AdminAnswer:
        method = b"GET" if request.head.method == b"HEAD" else request.head.method
        if method not in PATHS[path]:
            raise MethodNotAllowed(allowed(PATHS[path]))
        if path == b"/scheduler":
            return self._scheduler(_document(request, {"scheduler"}) if method == b"POST" else None)
        if method == b"GET":
            return _json(200, self._described())
        if path == b"/workers/drain":
            return self._drain(_url_of(_document(request, {"url"})))
        if method == b"POST":
            return self._add(_document(request, {"url", "model"}))
        return self._remove(_url_of(_asked(request)))

    def _scheduler(self, document: dict[str, Any] | None) -> AdminAnswer:
        """What waits at the gateway, by which policy; "fcfs" is safe off."""
        if document is not None:
            name = document.get("scheduler")
            if not isinstance(name, str):
                raise BadRequest("scheduler must be a string", param="scheduler")
            try:
                self._dispatcher.set_scheduler(name)
            except ConfigError as error:
                raise BadRequest(str(error), param="scheduler") from None
            _log.warning("what waits here is scheduled by %s from now on", name)
        queueing = self._dispatcher.queueing
        return _json(200, {"scheduler": queueing.scheduler, "waiting": len(queueing)})

    # -- the engines

    def _add(self, document: dict[str, Any]) -> AdminAnswer:
        url, model = _url_of(document), document.get("model")
        if model is not None and (not isinstance(model, str) or not model):
            raise BadRequest("model must be a string", param="model")
        try:
            self._workers.check((url,))
        except ConfigError as error:
            raise BadRequest(str(error), param="url") from None
        added = self._workers.add(url, model=model)
        return _json(201 if added else 200, self._one(url))

    def _drain(self, url: str) -> AdminAnswer:
        self._check_known(url)
        self._workers.drain(url)
        return _json(202, self._one(url))

    def _remove(self, url: str) -> AdminAnswer:
        self._check_known(url)
        self._workers.remove(url)
        return _json(200, {"url": url, "state": "removed"})

    def _check_known(self, url: str) -> None:
        if url not in self._workers:
            raise NotFound(f"there is no engine {url}", param="url")

    def _one(self, url: str) -> dict[str, object]:
        return next(_described(*known) for known in self._workers.watches() if known[0] == url)

    def _described(self) -> dict[str, object]:
        watches = self._workers.watches()
        return {"policy": self._policy, "workers": [_described(*known) for known in watches]}


def _ignore(request: IncomingRequest, subject: str) -> None:
    """Do nothing: there is one process."""


def allowed(methods: tuple[bytes, ...]) -> str:
    """As the Allow header has it."""
    return ", ".join(method.decode() for method in methods)


def _described(url: str, watch: WatchedEngine, worker: Engine) -> dict[str, object]:
    """How fair it can be depends on what the engine reports (DESIGN 3.4)."""
    basis = {
        None: "not known yet",
        True: "fair in extend tokens as the engine reports them",
        False: "fair in estimated extend",
    }
    return {
        "url": url,
        "up": worker.up,
        "state": "draining" if watch.draining else "up" if worker.up else "down",
        "takes_requests": worker.is_open,
        "problem": watch.problem,
        "circuit": watch.engine.breaker.phase.value,
        "faults": {fault.value: number for fault, number in watch.faults.items()},
        "models": sorted(worker.models) if worker.models is not None else None,
        "in_flight": len(worker.tickets),
        "load_problem": worker.load_problem if worker.queue is not None else None,
        "fairness": basis[worker.reports_cached],
    }


def _json(status: int, document: dict[str, object]) -> AdminAnswer:
    return AdminAnswer(status, orjson.dumps(document))


def _hashed(shown: bytes) -> bytes:
    return sha256(shown).digest()


def _is_here(peer: str | None) -> bool:
    """Whether the other end of the connection is on this machine."""
    try:
        address = ip_address(peer or "")
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def _names_here(head: RequestHead) -> bool:
    """Whether it is this machine that was to be asked, by its own name for itself.

    A name that somebody has pointed here is most likely a web page's (DNS rebinding), or a proxy's.
    """
    host = head.host.decode("latin-1").lower()
    name = host.rpartition(":")[0] if host[-1:] != "]" and ":" in host else host
    return name == "localhost" or _is_here(name.removeprefix("[").removesuffix("]"))


def _comes_through_others(head: RequestHead) -> bool:
    """Whether it says so; proxies that say nothing speak HTTP/1.0, as nginx unless told otherwise."""
    lines = head.lines.lower().split(b"\r\n")
    return head.http10 or any(line.startswith(_THROUGH_OTHERS) for line in lines)


def _document(request: IncomingRequest, fields: set[str]) -> dict[str, Any]:
    """The body's fields. Raises BadRequest."""
    try:
        document = orjson.loads(request.body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise BadRequest("the body must be a JSON object")
    for name in document:
        if name not in fields:
            raise BadRequest(f"there is no field {name!r}", param=name)
    return document


def _asked(request: IncomingRequest) -> dict[str, Any]:
    """`?url=...`, or the same in a body."""
    query = parse_qs(urlsplit(request.head.target.decode("ascii", "replace")).query)
    if "url" in query:
        if len(query["url"]) > 1:
            raise BadRequest("url was given more than once", param="url")
        return {"url": query["url"][0]}
    return _document(request, {"url"}) if request.body else {}


def _about(request: IncomingRequest, path: bytes) -> str:
    """The engine's URL, if it is about one."""
    if path == b"/scheduler":
        return ""
    posted = request.head.method == b"POST"
    return _url_of(_document(request, {"url", "model"}) if posted else _asked(request))


def _url_of(document: dict[str, Any]) -> str:
    url = document.get("url")
    if not isinstance(url, str):
        raise BadRequest("url must be a string: http://HOST:PORT", param="url")
    try:
        return parse_worker_url(url)
    except ValueError as error:
        raise BadRequest(f"url: {error}", param="url") from None
