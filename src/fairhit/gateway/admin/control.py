"""Admin API: operators list, add, drain and remove engines, and switch the scheduler.

Access needs the admin key. Without a configured key only callers on this machine have access, but not
through a proxy or from a web page, which act for others. If a proxy is known to be in front (it may not
identify itself), changes always need a key.
"""

import hmac
import logging
from collections.abc import Callable
from hashlib import sha256
from ipaddress import ip_address
from typing import Any
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

# Methods of each path; GET includes HEAD.
PATHS: dict[bytes, tuple[bytes, ...]] = {
    b"/workers": (b"GET", b"POST", b"DELETE"),
    b"/workers/drain": (b"POST",),
    b"/scheduler": (b"GET", b"POST"),
}
# Headers of requests that the peer forwards for another caller.
_FORWARDED = (b"forwarded:", b"x-forwarded-", b"x-real-ip:", b"via:", b"origin:")

AdminAnswer = tuple[int, bytes]  # status and JSON


class Control:
    """Answers requests to `PATHS`."""

    def __init__(
        self, *, dispatcher: Dispatcher, workers: EnginePool, settings: GatewaySettings
    ) -> None:
        self._dispatcher = dispatcher
        self._workers = workers
        self._policy = settings.router()
        # Sends a change and its subject to the other processes of this gateway.
        self.on_change: Callable[[IncomingRequest, str], None] = lambda *_: None
        self.change(settings)

    def change(self, settings: GatewaySettings) -> None:
        """Apply reloaded settings: the admin key, and whether a proxy is in front."""
        key = settings.admin_api_key
        self._key = _hashed(b"Bearer " + key.encode()) if key else None
        self._has_proxy = settings.trust_tenant_header

    def check_key(self, head: RequestHead) -> None:
        """Raise Unauthorized if an admin key is configured and `head` lacks it."""
        if self._key is not None:
            scheme, _, key = head.authorization.partition(b" ")
            shown = b"Bearer " + key.strip() if scheme.lower() == b"bearer" else b""
            if not hmac.compare_digest(_hashed(shown), self._key):
                raise Unauthorized("missing or invalid admin key")

    def authorize(self, request: IncomingRequest, peer: str | None) -> None:
        """Raise Unauthorized or Forbidden if the caller has no access."""
        self.check_key(request.head)
        if self._key is None and not (
            _is_here(peer) and _is_for_here(request.head) and not _is_forwarded(request.head)
        ):
            raise Forbidden("only from this machine, as no --admin-api-key is set")
        if self._key is None and self._has_proxy and request.head.method not in {b"GET", b"HEAD"}:
            raise Forbidden("--trust-tenant-header: behind a proxy this takes an --admin-api-key")

    def answer(self, request: IncomingRequest, path: bytes) -> AdminAnswer:
        """Execute a request, and send a change to the other processes. Raises CallerError."""
        answer = self._answer(request, path)
        if request.head.method not in {b"GET", b"HEAD"}:
            self.on_change(request, _subject(request, path))
        return answer

    def repeat(self, request: IncomingRequest) -> None:
        """Execute a change that another process received. Raises CallerError."""
        self._answer(request, path_of(request.head.target))

    def _answer(self, request: IncomingRequest, path: bytes) -> AdminAnswer:
        method = b"GET" if request.head.method == b"HEAD" else request.head.method
        if method not in PATHS[path]:
            raise MethodNotAllowed(b", ".join(PATHS[path]).decode())
        if path == b"/scheduler":
            return self._scheduler(_document(request, {"scheduler"}) if method == b"POST" else None)
        if method == b"GET":
            return _json(200, self._described())
        if path == b"/workers/drain":
            return self._drain(_url_of(_document(request, {"url"})))
        if method == b"POST":
            return self._add(_document(request, {"url", "model"}))
        return self._remove(_url_of(_url_field(request)))

    def _scheduler(self, document: dict[str, Any] | None) -> AdminAnswer:
        """Set the scheduling policy of the gateway's queue, if given, and return it ("fcfs": no fairness)."""
        if document is not None:
            name = document.get("scheduler")
            if not isinstance(name, str):
                raise BadRequest("scheduler must be a string", param="scheduler")
            try:
                self._dispatcher.set_scheduler(name)
            except ConfigError as error:
                raise BadRequest(str(error), param="scheduler") from None
            _log.warning("scheduler of the gateway's queue is now %s", name)
        queueing = self._dispatcher.queue
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


def _described(url: str, watch: WatchedEngine, worker: Engine) -> dict[str, object]:
    """State of one engine. Its reports decide in which tokens it is fair (DESIGN 3.4)."""
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
        "load_problem": worker.load_problem if worker.limit is not None else None,
        "fairness": basis[worker.reports_cached],
    }


def _json(status: int, document: dict[str, object]) -> AdminAnswer:
    return status, orjson.dumps(document)


def _hashed(shown: bytes) -> bytes:
    return sha256(shown).digest()


def _is_here(peer: str | None) -> bool:
    """True if the address `peer` is of this machine."""
    try:
        address = ip_address(peer or "")
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def _is_for_here(head: RequestHead) -> bool:
    """True if the Host header names this machine as localhost or by a loopback address.

    Any other name that resolves to this machine is probably a web page's (DNS rebinding) or a proxy's.
    """
    host = head.host.decode("latin-1").lower()
    name = host.rpartition(":")[0] if host[-1:] != "]" and ":" in host else host
    return name == "localhost" or _is_here(name.removeprefix("[").removesuffix("]"))


def _is_forwarded(head: RequestHead) -> bool:
    """True if a proxy forwarded the request. Proxies that add no header use HTTP/1.0, like nginx."""
    lines = head.lines.lower().split(b"\r\n")
    return head.http10 or any(line.startswith(_FORWARDED) for line in lines)


def _document(request: IncomingRequest, fields: set[str]) -> dict[str, Any]:
    """The body as a JSON object with no other than `fields`. Raises BadRequest."""
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


def _url_field(request: IncomingRequest) -> dict[str, Any]:
    """Field `url` from the query, or else from the body."""
    query = parse_qs(urlsplit(request.head.target.decode("ascii", "replace")).query)
    if "url" in query:
        if len(query["url"]) > 1:
            raise BadRequest("url was given more than once", param="url")
        return {"url": query["url"][0]}
    return _document(request, {"url"}) if request.body else {}


def _subject(request: IncomingRequest, path: bytes) -> str:
    """URL of the engine that a change is about; empty for the scheduler."""
    if path == b"/scheduler":
        return ""
    posted = request.head.method == b"POST"
    return _url_of(_document(request, {"url", "model"}) if posted else _url_field(request))


def _url_of(document: dict[str, Any]) -> str:
    url = document.get("url")
    if not isinstance(url, str):
        raise BadRequest("url must be a string: http://HOST:PORT", param="url")
    try:
        return parse_worker_url(url)
    except ValueError as error:
        raise BadRequest(f"url: {error}", param="url") from None
