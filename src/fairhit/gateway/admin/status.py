"""Status of the gateway: health, readiness, models, metrics, dashboard."""

from importlib.metadata import version
from importlib.resources import files
from typing import NamedTuple
from urllib.parse import unquote

import orjson

from fairhit.dispatch import Dispatcher
from fairhit.errors import NoEngine, NotFound
from fairhit.gateway.observability.metrics.gateway_metrics import GatewayMetrics
from fairhit.gateway.observability.observability import Observability
from fairhit.gateway.observability.page import dashboard
from fairhit.gateway.pool.engine_pool import EnginePool

_JSON = b"application/json"
_METRICS = b"text/plain; version=0.0.4; charset=utf-8"

_VERSION = version("fairhit")


class Page(NamedTuple):
    """A response; `lines` are additional headers."""

    status: int
    content_type: bytes
    body: bytes
    lines: tuple[bytes, ...] = ()


class Admin:
    """Answers GET requests that need no engine."""

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        workers: EnginePool,
        metrics: GatewayMetrics,
        observability: Observability,
        has_metrics: bool,
    ) -> None:
        self._dispatcher = dispatcher
        self._workers = workers
        self._metrics = metrics
        self._observability = observability
        self._page = dashboard.read_files()
        self._has_metrics = has_metrics
        self._description = (files("fairhit.gateway.admin") / "openapi.json").read_bytes()

    def answer(self, path: bytes, target: bytes, *, stopping: bool) -> Page | None:
        """Response for `path`, the path of `target`; None if there is no such path."""
        if path == b"/health":
            return Page(200, _JSON, b'{"status":"ok"}')
        if path == b"/readiness":
            return self._readiness(stopping=stopping)
        if path == b"/metrics" and self._has_metrics:
            return Page(200, _METRICS, self._metrics.exposition())
        if path == b"/openapi.json":
            return Page(200, _JSON, self._description)
        if path == b"/v1/models":
            return self._models()
        if path.startswith(b"/v1/models/"):
            return self._model(unquote(path[len(b"/v1/models/") :].decode("ascii", "replace")))
        if path == dashboard.DATA:
            return Page(200, _JSON, self._observability.data(dashboard.requested_since(target)))
        if path in self._page:
            return Page(200, *self._page[path])
        if path == b"/version":
            return Page(200, _JSON, orjson.dumps({"version": _VERSION}))
        return None

    def _readiness(self, *, stopping: bool) -> Page:
        if stopping:
            return Page(503, _JSON, b'{"status":"stopping"}')
        if not self._dispatcher.ready():
            return Page(503, _JSON, b'{"status":"no engine is ready"}')
        return Page(200, _JSON, b'{"status":"ready"}')

    def _models(self) -> Page:
        if not self._dispatcher.ready():
            raise NoEngine("no engine is ready")
        return Page(200, _JSON, orjson.dumps({"object": "list", "data": self._workers.models()}))

    def _model(self, name: str) -> Page:
        if not self._dispatcher.ready():
            raise NoEngine("no engine is ready")
        for model in self._workers.models():
            if model["id"] == name:
                return Page(200, _JSON, orjson.dumps(model))
        raise NotFound(f"the model {name!r} does not exist", param="model")
