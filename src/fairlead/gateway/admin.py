"""What the gateway says about itself: health, readiness, models, metrics."""

from importlib.metadata import version
from importlib.resources import files
from urllib.parse import unquote

import orjson

from fairlead.dispatch import Dispatcher
from fairlead.errors import NoEngine, NotFound
from fairlead.gateway.observability import Observability
from fairlead.gateway.workers import Workers

_JSON = b"application/json"
_METRICS = b"text/plain; version=0.0.4; charset=utf-8"

_VERSION = version("fairlead")

# Status, content type, body.
Answer = tuple[int, bytes, bytes]


class Admin:
    """The answers to GET requests that need no engine."""

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        workers: Workers,
        observability: Observability,
    ) -> None:
        self._dispatcher = dispatcher
        self._workers = workers
        self._observability = observability
        self._description = (files("fairlead.gateway") / "openapi.json").read_bytes()

    def answer(self, path: bytes, *, stopping: bool) -> Answer | None:
        """The answer for `path`, None if there is no such path."""
        if path == b"/health":
            return 200, _JSON, b'{"status":"ok"}'
        if path == b"/readiness":
            return self._readiness(stopping=stopping)
        if path == b"/metrics":
            return 200, _METRICS, self._observability.exposition()
        if path == b"/openapi.json":
            return 200, _JSON, self._description
        if path == b"/v1/models":
            return self._models()
        if path.startswith(b"/v1/models/"):
            return self._model(unquote(path[len(b"/v1/models/") :].decode("ascii", "replace")))
        if path == b"/version":
            return 200, _JSON, orjson.dumps({"version": _VERSION})
        return None

    def _readiness(self, *, stopping: bool) -> Answer:
        if stopping:
            return 503, _JSON, b'{"status":"stopping"}'
        if not self._dispatcher.ready():
            return 503, _JSON, b'{"status":"no engine is ready"}'
        return 200, _JSON, b'{"status":"ready"}'

    def _models(self) -> Answer:
        if not self._dispatcher.ready():
            raise NoEngine("no engine is ready")
        return 200, _JSON, orjson.dumps({"object": "list", "data": self._workers.models()})

    def _model(self, name: str) -> Answer:
        if not self._dispatcher.ready():
            raise NoEngine("no engine is ready")
        for model in self._workers.models():
            if model["id"] == name:
                return 200, _JSON, orjson.dumps(model)
        raise NotFound(f"the model {name!r} does not exist", param="model")
