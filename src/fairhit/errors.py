"""Every error fairhit raises on purpose, split by who is at fault.

FairhitError
├── ConfigError         the operator: a flag, a file, a setting (exit 2, one line)
├── CallerError         the caller of the API: answered with a 4xx status
│   ├── BadRequest      400: malformed JSON, a wrong type, a request that can never fit
│   ├── Unauthorized    401: no key or an unknown one; never says which keys exist
│   ├── Forbidden       403: a surface that is not for this caller
│   ├── NotFound        404: unknown path or model
│   ├── MethodNotAllowed 405: the path takes other methods
│   ├── QueueTimeout    408: it waited too long for a place among all requests in flight
│   ├── TooLarge        413: the body is over the limit
│   └── QueueFull       429: this client's queue is full; others are not affected
├── GatewayFull         503: this gateway has no connection or file descriptor left; no engine is to blame
├── WorkerLost          the machine: it ended a process of ours, as it does where memory is short (exit 1)
└── EngineError         an engine: answered with a 5xx status
    ├── NoEngine        503: none is ready
    └── EngineFailed    502: it failed before or while answering

An `AssertionError` anywhere is our bug, never bad input.
"""


class FairhitError(Exception):
    """The root: catch this to catch all of ours and nothing else."""


class ConfigError(FairhitError):
    """A setting is wrong; the message is one line that names what, where and the expected form."""


class CallerError(FairhitError):
    """The caller's request cannot be served as it is; `param` names the field when there is one."""

    status = 400

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class BadRequest(CallerError):
    """400."""


class Unauthorized(CallerError):
    """401."""

    status = 401


class Forbidden(CallerError):
    """403."""

    status = 403


class MethodNotAllowed(CallerError):
    """405; `allow` is what the path takes, as the header of that name lists it."""

    status = 405

    def __init__(self, allow: str) -> None:
        super().__init__(f"this path takes {allow}")
        self.allow = allow


class NotFound(CallerError):
    """404."""

    status = 404


class TooLarge(CallerError):
    """413."""

    status = 413


class QueueFull(CallerError):
    """429, with Retry-After."""

    status = 429


class QueueTimeout(CallerError):
    """408, with Retry-After."""

    status = 408


class GatewayFull(FairhitError):
    """503, with Retry-After: what this gateway, or its machine, has too few of."""

    status = 503


class WorkerLost(FairhitError):
    """A process of an experiment was killed; the message names what it was running."""


class EngineError(FairhitError):
    """An engine cannot or did not do its part."""

    status = 502


class NoEngine(EngineError):
    """No engine is ready: 503, with Retry-After."""

    status = 503


class EngineFailed(EngineError):
    """The engine broke the connection or answered with nonsense."""


class AuditFailed(AssertionError):
    """Records of a plug-in contradict its engine's: a defect of the plug-in, found by its setting `audit`."""


def in_words(error: OSError) -> str:
    """An operating system error in one line: the file, where there is one, and the reason."""
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename else reason
