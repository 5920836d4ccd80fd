"""Values in settings that are more than a number: URLs, lists, shares."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator

from fairlead.core.service import parse_weight
from fairlead.errors import ConfigError

IdentityField = Literal["vllm", "sglang", "both", "none"]
UsageField = Literal["stream_options", "none"]
LogLevel = Literal["debug", "info", "warning", "error"]


def parse_worker_url(value: object) -> str:
    """`http://host:port`, perhaps with a path under which the engine is found."""
    text = str(value).rstrip("/")
    if " " in text or not text.isprintable():  # urlsplit would drop some of them in silence
        raise ValueError("expected http://HOST:PORT without a blank")
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("expected http://HOST:PORT")
    if parts.username or parts.password:
        raise ValueError("expected no user or password in the URL")
    if parts.port == 0:  # `port` raises ValueError by itself
        raise ValueError("expected a port above 0")
    return text


def parse_weights(value: object) -> Mapping[str, str]:
    """`a=2,b=1` or a mapping; each weight is checked, and kept as text for exactness."""
    if isinstance(value, str):
        pairs = [pair.partition("=") for pair in value.split(",") if pair]
        if not all(equals and client for client, equals, _ in pairs):
            raise ValueError("expected CLIENT=WEIGHT,...")
        value = {client: weight for client, _, weight in pairs}
        if len(value) < len(pairs):
            raise ValueError("expected each client once")
    if not isinstance(value, Mapping):
        raise ValueError("expected CLIENT=WEIGHT,...")
    for client, weight in value.items():
        try:
            parse_weight(weight, where=f"weight of client {client!r}")
        except ConfigError as error:
            raise ValueError(str(error)) from None
    return {str(client): str(weight) for client, weight in value.items()}


def parse_level(value: object) -> object:
    """A level of the log; `warn` is what the Rust gateways call it."""
    name = str(value).lower()
    return "warning" if name == "warn" else name


def parse_path(value: object) -> object:
    """A path as it is written into a request."""
    text = str(value)
    if not text.startswith("/") or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("expected a path: /health")
    return text


def not_empty(text: str) -> str:
    """What a variable that is set to nothing, or `--flag "$UNSET"`, gives is no value."""
    if not text.strip():
        raise ValueError("expected a value, got an empty one")
    return text


def parse_limit(number: int) -> int:
    """A number above 0, or -1 for none: 0 might mean either."""
    if number != -1 and number < 1:
        raise ValueError(f"expected a number above 0, or -1 for no limit, got {number}")
    return number


def parse_header_name(value: object) -> str:
    """The name of a header, in small letters."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", str(value)):
        raise ValueError(f"expected the name of a header, got {value!r}")
    return str(value).lower()


def parse_origin(value: object) -> str:
    """A web page's origin as browsers send it, or `*`."""
    text = str(value)
    if text not in {"*", "null"} and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^\s/?#]+", text):
        raise ValueError(f"expected * or https://HOST, got {text!r}")
    return text


def parse_http_url(value: object) -> str:
    """`http://HOST:PORT/PATH`, of a service that is not an engine."""
    text = str(value)
    try:
        parts = urlsplit(text)
        has_host, _ = bool(parts.hostname), parts.port
    except ValueError:
        has_host = False
    if not has_host or not text.startswith(("http://", "https://")):
        raise ValueError("expected http://HOST:PORT/PATH")
    return text


def split_words(value: object) -> object:
    """A list, or the same as one text with blanks between."""
    return tuple(value.split()) if isinstance(value, str) else value


def split_list(value: object) -> object:
    """A list, or the same as one text with commas or blanks between; texts in it may have commas."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, Sequence):
        return value
    parts: list[Any] = []
    for item in value:
        parts += item.replace(",", " ").split() if isinstance(item, str) else [item]
    return tuple(parts)


def parse_header_names(value: object) -> object:
    """Names of headers, in small letters."""
    names = split_list(value)
    return tuple(map(parse_header_name, names)) if isinstance(names, tuple) else names


WorkerUrl = Annotated[str, BeforeValidator(parse_worker_url)]
WorkerUrls = Annotated[tuple[WorkerUrl, ...], BeforeValidator(split_list)]
# Separated by commas or blanks.
Names = Annotated[tuple[str, ...], BeforeValidator(split_list)]
Paths = Annotated[tuple[Path, ...], BeforeValidator(split_list)]
# Separated by blanks only: a key may have a comma.
Words = Annotated[tuple[str, ...], BeforeValidator(split_words)]
Shares = Annotated[Mapping[str, str], BeforeValidator(parse_weights)]
Limit = Annotated[int, AfterValidator(parse_limit)]
Text = Annotated[str, AfterValidator(not_empty)]
HeaderName = Annotated[str, BeforeValidator(parse_header_name)]
Origin = Annotated[str, BeforeValidator(parse_origin)]
Origins = Annotated[tuple[Origin, ...], BeforeValidator(split_list)]
HttpUrl = Annotated[str, BeforeValidator(parse_http_url)]
HeaderNames = Annotated[tuple[str, ...], BeforeValidator(parse_header_names)]
HttpPath = Annotated[str, BeforeValidator(parse_path)]
Level = Annotated[LogLevel, BeforeValidator(parse_level)]
