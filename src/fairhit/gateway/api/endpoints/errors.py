"""The gateway's own errors in the shape of each API."""

import orjson

from fairhit.errors import CallerError, FairhitError, GatewayFull, QueueFull, QueueTimeout

_OPENAI: dict[int, tuple[str, str | None]] = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("permission_error", "forbidden"),
    404: ("invalid_request_error", None),
    405: ("invalid_request_error", None),
    408: ("invalid_request_error", "request_timeout"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    431: ("invalid_request_error", "headers_too_large"),
    502: ("server_error", "engine_failed"),
    503: ("server_error", "no_engine"),
    504: ("server_error", "engine_timeout"),
}

_ANTHROPIC = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    431: "request_too_large",
    503: "overloaded_error",
    504: "timeout_error",
}


def openai_error(error: Exception, status: int) -> bytes:
    """OpenAI's error shape."""
    return orjson.dumps({"error": _described(error, status)})


def openai_event(error: Exception, status: int) -> bytes:
    """The last event of a stream, with the error in the same shape."""
    return b"data: " + openai_error(error, status) + b"\n\n"


def responses_event(error: Exception, status: int) -> bytes:
    """The last event of a stream of /v1/responses. Beside the API's own fields it has the object by which
    OpenAI's clients recognise an error that they must raise.
    """
    described = _described(error, status)
    event = {"type": "error", **{k: described[k] for k in ("code", "message", "param")}}
    data = orjson.dumps({**event, "sequence_number": 0, "error": described})
    return b"event: error\ndata: " + data + b"\n\n"


def anthropic_error(error: Exception, status: int) -> bytes:
    """Anthropic's error shape, which has no field for the parameter's name."""
    kind = _ANTHROPIC.get(status, "api_error")
    return orjson.dumps({"type": "error", "error": {"type": kind, "message": _message(error)}})


def anthropic_event(error: Exception, status: int) -> bytes:
    """The last event of a stream, with the error in the same shape."""
    return b"event: error\ndata: " + anthropic_error(error, status) + b"\n\n"


def status_of(error: Exception) -> int:
    """HTTP status of an error; 500 for bugs."""
    return int(getattr(error, "status", 500)) if isinstance(error, FairhitError) else 500


def retry_after(error: Exception, status: int) -> int | None:
    """Seconds to wait before a retry, None where a retry cannot help."""
    return 1 if status in {502, 503} or isinstance(error, QueueFull | QueueTimeout) else None


def _described(error: Exception, status: int) -> dict[str, str | None]:
    kind, code = _OPENAI.get(status, ("server_error", None))
    param = error.param if isinstance(error, CallerError) else None
    if status == 404 and param == "model":
        code = "model_not_found"
    elif isinstance(error, GatewayFull):
        code = "gateway_full"
    return {"message": _message(error), "type": kind, "param": param, "code": code}


def _message(error: Exception) -> str:
    return str(error) or "internal error"
