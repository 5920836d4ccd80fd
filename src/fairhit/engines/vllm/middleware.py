"""ClientIdentity, an ASGI middleware: writes the client of the API key into each request.

Integration points: vLLM's `--middleware` adds the class outermost, in every API server process, and
constructs it with the app; `vllm_xargs` of the JSON body becomes `extra_args` in the engine, and so
does `sampling_params.extra_args` of the token-level endpoint.

A client name sent by the caller is always overwritten. The body is parsed exactly as vLLM parses it (the
standard library, last duplicate wins) and serialised anew, so that duplicated or escaped keys cannot mean
one client here and another one in the engine.
"""

import hashlib
import json
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote_to_bytes

from fairhit.client_names import client_name
from fairhit.core.request import ClientId
from fairhit.engines.vllm.identity import CLIENT_FIELD
from fairhit.errors import BadRequest, CallerError, ConfigError, TooLarge, Unauthorized

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

# Probes and scrapes carry no key; vLLM's own `--api-key` leaves them open, too.
OPEN_PATHS = frozenset({"/health", "/ping", "/metrics", "/load", "/version"})
# Paths where vLLM accepts `vllm_xargs`. Elsewhere (embeddings, tokenize) a client's name has no effect.
CARRIERS = ("/completions", "/completions/batch", "/responses", "/messages", "/invocations")
# Enough for a long multimodal prompt; a body is in memory while its client is looked up.
MAX_BODY_BYTES = 64 * 2**20
_FORMS = (b"multipart/form-data", b"application/x-www-form-urlencoded")
# The only charset that a form may name. The server decodes field names by it: another one, utf-7 say,
# would spell a field's name in bytes that are not recognised here.
_UTF_8 = re.compile(rb';\s*charset\s*=\s*("?)utf-?8\1\s*(?=;|$)', re.IGNORECASE)
# A parameter in parts or with an encoding of its own (RFC 2231), which some parsers join.
_EXTENDED_NAME = re.compile(rb";\s*name\*", re.IGNORECASE)


class ClientIdentity:
    """Answers 401 without a known key; else writes the client of the key into the request.

    Keys come from the file named by FAIRHIT_KEYS_FILE (one `client:key` a line) and from
    FAIRHIT_KEYS (`client:key`, comma separated). A websocket needs a key as well, but is served as
    `anonymous`, as it has no body to write into; so is a form, an audio upload.
    """

    def __init__(self, app: App, environ: Mapping[str, str] | None = None) -> None:
        self._app = app
        self._clients = read_keys(os.environ if environ is None else environ)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve an ASGI connection."""
        if scope["type"] not in {"http", "websocket"} or _is_open(scope):
            return await self._app(scope, receive, send)
        try:
            client = self._client(scope["headers"])
            if scope["type"] == "http" and scope["method"] in {"POST", "PUT", "PATCH"}:
                body = await _read(receive)
                if body is None:
                    return None  # the caller disconnected before the body was complete
                body = rewrite(body, client, path=scope["path"], content_type=_content_type(scope))
                scope, receive = _with_length(scope, len(body)), _replay(body, receive)
        except CallerError as error:
            return await _refuse(scope, send, error)
        return await self._app(scope, receive, send)

    def _client(self, headers: Iterable[tuple[bytes, bytes]]) -> ClientId:
        """Return the client of the key in the headers. Raises Unauthorized, always with one message."""
        given = [value for name, value in headers if name.lower() == b"authorization"]
        scheme, _, key = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        # Looked up by digest, so that the time of a lookup reveals nothing about existing keys.
        client = self._clients.get(hashlib.sha256(key.strip()).digest())
        if client is None or scheme.lower() != b"bearer":
            raise Unauthorized("Missing or unknown API key.")
        return client


def read_keys(environ: Mapping[str, str]) -> dict[bytes, ClientId]:
    """Return the clients by sha256(key). Raises ConfigError, in one line without a key, if there is none."""
    lines = [
        (f"FAIRHIT_KEYS entry {number}", entry)
        for number, entry in enumerate(environ.get("FAIRHIT_KEYS", "").split(","), 1)
    ]
    if path := environ.get("FAIRHIT_KEYS_FILE"):
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"FAIRHIT_KEYS_FILE: cannot read {path}: {error}") from error
        lines += [(f"{path}:{number}", line) for number, line in enumerate(text.splitlines(), 1)]
    clients: dict[bytes, ClientId] = {}
    for where, line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        client, _, key = (part.strip() for part in line.partition(":"))
        if not key or client != client_name(client):
            raise ConfigError(
                f"{where}: expected client:key, the client of letters, digits and ._@/+=~-"
            )
        if clients.setdefault(hashlib.sha256(key.encode()).digest(), client) != client:
            raise ConfigError(
                f"{where}: the key of client {client!r} belongs to another client, too"
            )
    if not clients:
        raise ConfigError(
            "ClientIdentity: no keys; set FAIRHIT_KEYS_FILE or FAIRHIT_KEYS=client:key"
        )
    return clients


def rewrite(body: bytes, client: ClientId, *, path: str, content_type: bytes) -> bytes:
    """Return the body with `client` as its only identity. Raises BadRequest if that is impossible."""
    if not body:
        return body
    if content_type.partition(b";")[0].strip().lower() in _FORMS:
        # Audio uploads: their `vllm_xargs` is a form field, and rewriting a form is costly.
        _check_form(body, content_type)
        return body
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        raise BadRequest("The body is not valid JSON.") from None
    if not isinstance(request, dict):
        return body
    is_carrier = path.rstrip("/").endswith(CARRIERS)
    _write(request, "vllm_xargs", client if is_carrier else None)
    if isinstance(request.get("sampling_params"), dict):
        _write(request["sampling_params"], "extra_args", client)
    # Escaped to ASCII, so that parsers cannot disagree about the encoding.
    return json.dumps(request, separators=(",", ":")).encode("ascii")


def _check_form(body: bytes, content_type: bytes) -> None:
    """Raises BadRequest if the form names a client, or may do so in a way that only the server recognises."""
    parameters = _UTF_8.sub(b"", content_type).lower()
    if b"charset" in parameters or b"*" in parameters:
        raise BadRequest("A form must be in UTF-8.", param="charset")
    if _EXTENDED_NAME.search(body):
        raise BadRequest("The name of a form field must be given plainly.", param="name")
    if b"vllm_xargs" in unquote_to_bytes(body):
        raise BadRequest("A form may not carry vllm_xargs.", param="vllm_xargs")


def _write(holder: dict[str, Any], field: str, client: ClientId | None) -> None:
    """Write `client` into holder[field]; with None remove the client there."""
    carried = holder.get(field)
    if carried is None and client is None:
        return
    if carried is not None and not isinstance(carried, dict):
        raise BadRequest(f"{field} must be an object.", param=field)
    carried = dict(carried or {})
    carried.pop(CLIENT_FIELD, None)
    if client is not None:
        carried[CLIENT_FIELD] = client
    holder[field] = carried


def _is_open(scope: Scope) -> bool:
    """Return whether the request needs no key: probes, scrapes, and preflight requests of browsers."""
    if scope["type"] == "websocket":
        return False
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    return scope["method"] == "OPTIONS" or (scope["method"] == "GET" and path in OPEN_PATHS)


def _content_type(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name.lower() == b"content-type":
            return bytes(value)
    return b""


async def _read(receive: Receive) -> bytes | None:
    """Read the whole body; None if the caller disconnects first."""
    parts: list[bytes] = []
    size, is_more = 0, True
    while is_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MAX_BODY_BYTES:
            raise TooLarge(f"The body is larger than {MAX_BODY_BYTES} bytes.")
        is_more = message.get("more_body", False)
    return b"".join(parts)


def _with_length(scope: Scope, length: int) -> Scope:
    """Return the scope with the new body's length."""
    sized = {b"content-length", b"transfer-encoding"}
    kept = [(name, value) for name, value in scope["headers"] if name.lower() not in sized]
    return {**scope, "headers": [*kept, (b"content-length", b"%d" % length)]}


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that yields the body once, then the server's messages, such as a disconnect."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay


async def _refuse(scope: Scope, send: Send, error: CallerError) -> None:
    """Answer with an error in OpenAI's format, or close a websocket that is not open yet."""
    if scope["type"] == "websocket":
        return await send({"type": "websocket.close", "code": 1008})
    is_key = isinstance(error, Unauthorized)
    detail = {
        "message": str(error),
        "type": "authentication_error" if is_key else "invalid_request_error",
        "param": error.param,
        "code": "invalid_api_key" if is_key else None,
    }
    body = json.dumps({"error": detail}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if is_key:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
    return None
