"""Types of the gateway's settings that are more than a number: URLs, headers, keys, names of policies."""

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal, cast, get_args
from urllib.parse import parse_qsl, urlsplit

from fairhit.dispatch import QUEUE_SCHEDULERS
from fairhit.errors import ConfigError
from fairhit.gateway.auth.header_rules import HEADERS, TENANT
from fairhit.gateway.auth.keys import hashed_line
from fairhit.settings.kinds import FILLED, PATH, TEXT, WEIGHTS, Kind, list_of, one_of, refused

IdentityField = Literal["vllm", "sglang", "both", "none"]
UsageField = Literal["stream_options", "none"]
Prepay = Literal["expected", "none"]
QueuePlace = Literal["gateway", "engine"]
PolicyName = Literal["d2lpm", "round-robin", "least-loaded", "power-of-two", "sticky"]
POLICIES: Final[tuple[str, ...]] = get_args(PolicyName)
KEY_FLAG = "--tenant-api-key"

_LEVELS = one_of("debug", "info", "warning", "error")
_EVENT_ADDRESS = re.compile(r"(tcp://[^\s/]+:(?P<port>\d{1,5})|ipc://\S+)")
# Another spelling of the same router.
_SPELLINGS: Final = {"roundrobin": "round-robin"}
# Another gateway's name -> our router of the same purpose; its algorithm is ours (docs/reference/routers.md).
_EQUIVALENT: Final[dict[str, PolicyName]] = {
    # Where the prefix is cached, by sglang-router, smg, vllm-router, production-stack, AIBrix, Dynamo.
    **dict.fromkeys(
        ("cache-aware", "prefix-hash", "kv-aware", "prefixaware", "kvaware", "prefix-cache",
         "prefix-aware", "kv"),
        "d2lpm",
    ),
    # Where least is in flight, by smg, AIBrix, LiteLLM.
    **dict.fromkeys(("least-load", "least-request", "least-busy"), "least-loaded"),
    # By a key that the caller sends: sglang-router, smg, vllm-router, production-stack, AIBrix.
    **dict.fromkeys(
        ("manual", "consistent-hash", "consistent-hashing", "rendezvous-hash", "session",
         "session-affinity"),
        "sticky",
    ),
    # Evenly, whatever is cached where: sglang-router, smg, vllm-router, AIBrix, LiteLLM.
    **dict.fromkeys(("random", "simple-shuffle"), "round-robin"),
}  # fmt: skip


def parse_worker_url(value: object) -> str:
    """Read `http://host:port`, perhaps with a path below which the engine serves. Raises ValueError."""
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


def parse_endpoints(value: object) -> Mapping[str, Sequence[str]]:
    """Read `URL=tcp://HOST:PORT`, an address for each data-parallel rank; or a mapping. Raises ValueError."""
    if isinstance(value, Mapping):
        pairs = [(str(url), given) for url, given in value.items()]
    else:
        texts = value.split() if isinstance(value, str) else value
        if not isinstance(texts, Sequence):
            raise ValueError("expected URL=tcp://HOST:PORT")
        # An engine's URL has no `=`: a query is refused.
        pairs = [(text.partition("=")[0], text.partition("=")[2]) for text in map(str, texts)]
    endpoints = {}
    for url, given in pairs:
        addresses = tuple(given.split(",")) if isinstance(given, str) else tuple(map(str, given))
        if not addresses or not all(map(_is_event_address, addresses)):
            raise ValueError("expected URL=tcp://HOST:PORT")
        endpoints[parse_worker_url(url)] = addresses
    return endpoints


def _is_event_address(text: str) -> bool:
    found = _EVENT_ADDRESS.fullmatch(text)
    return found is not None and 0 < int(found["port"] or 1) < 65536


def redis_url(value: object) -> str:
    """Read a Redis address, with options of TLS only. Raises ValueError that does not repeat the URL."""
    if not isinstance(value, str) or not _is_redis_address(value):
        raise ValueError("expected redis://HOST:PORT, rediss://HOST:PORT or unix://PATH")
    parts = urlsplit(value)
    for option, _ in parse_qsl(parts.query, keep_blank_values=True):
        if not option.startswith("ssl_"):  # others would change what the client returns
            raise ValueError(f"its option {option!r} is not one of TLS: ssl_...")
        if parts.scheme != "rediss":
            raise ValueError(f"its option {option!r} is for rediss:// only")
    return value


def _is_redis_address(url: str) -> bool:
    """After the host there may be the number of a database, and nothing else."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:  # its text has parts of the password where that has a slash
        return False
    if parts.scheme == "unix":
        return len(parts.path) > 1
    database = parts.path.strip("/")
    is_number = database.isascii() and database.isdigit()
    return parts.scheme in {"redis", "rediss"} and (is_number or not database)


def _read_http_url(value: object) -> str:
    text = str(value)
    try:
        parts = urlsplit(text)
        has_host, _ = bool(parts.hostname), parts.port
    except ValueError:
        has_host = False
    if not has_host or not text.startswith(("http://", "https://")):
        raise ValueError("expected http://HOST:PORT/PATH")
    return text


def _read_level(value: object) -> str:
    """A level of the log; `warn` is what the Rust gateways call one of them."""
    name = str(value).lower()
    return str(_LEVELS.read("warning" if name == "warn" else name))


def _read_http_path(value: object) -> str:
    text = str(value)
    if not text.startswith("/") or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("expected a path: /health")
    return text


def _read_limit(value: object) -> int:
    """A number above 0, or -1 for no limit: 0 might mean either."""
    words = "a number above 0, or -1 for no limit"
    try:
        number = int(str(value))
    except ValueError:
        raise refused(words, value) from None
    if number != -1 and number < 1:
        raise refused(words, number)
    return number


def _read_header_name(value: object) -> str:
    """The name of a header, in lower case."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9_-]+", value):
        raise refused("the name of a header", value)
    return value.lower()


def _read_key_header(value: object) -> str:
    """The name of a header that the gateway still has when it routes a request."""
    name = _read_header_name(value)
    if HEADERS.get(name.encode(), TENANT) != TENANT:
        raise ValueError(f"expected a header that says nothing else, got {name!r}")
    return name


def _read_origin(value: object) -> str:
    """A web page's origin as browsers send it, or `*`."""
    text = str(value)
    if text not in {"*", "null"} and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^\s/?#]+", text):
        raise refused("* or https://HOST", text)
    return text


def _read_keys(value: object) -> tuple[str, ...]:
    """Read lines TENANT:KEY, a list or one text with blanks between; no key is kept unhashed."""
    lines = value.split() if isinstance(value, str) else value
    if not isinstance(lines, Sequence):
        raise ValueError("expected a list")
    try:
        return tuple(hashed_line(str(line), where=KEY_FLAG) for line in lines)
    except ConfigError as error:
        raise ValueError(str(error).removeprefix(f"{KEY_FLAG}: ")) from None


def _read_policy(value: object) -> str:
    """A router's name, or another gateway's name for one; with dashes and in lower case."""
    spelt = str(value).replace("_", "-").lower()
    name = _SPELLINGS.get(spelt, spelt)
    known = [*POLICIES, *_EQUIVALENT]
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        theirs = ", ".join(_EQUIVALENT)
        raise ValueError(
            f"expected one of {', '.join(POLICIES)}, or of other gateways' {theirs}, got {name!r}{meant}"
        )
    return name


def router_of(name: str) -> PolicyName:
    """The router that a known name of a policy stands for."""
    return cast("PolicyName", name) if name in POLICIES else _EQUIVALENT[name]


def _read_shares(value: object) -> Mapping[str, str]:
    """As other weights; a variable that is set to nothing gives none."""
    return {} if value == "" else cast("Mapping[str, str]", WEIGHTS.read(value))


WorkerUrls = Annotated[tuple[str, ...], list_of(parse_worker_url)]
Names = Annotated[tuple[str, ...], list_of(TEXT.read)]
Paths = Annotated[tuple[Path, ...], list_of(PATH.read)]
# Separated by blanks only: a key may have a comma.
TenantKeys = Annotated[tuple[str, ...], Kind("TENANT:KEY ...", _read_keys)]
Shares = Annotated[Mapping[str, str], Kind("CLIENT=WEIGHT,...", _read_shares)]
Limit = Annotated[int, Kind("a number above 0, or -1 for no limit", _read_limit)]
Text = Annotated[str, FILLED]
HeaderName = Annotated[str, Kind("the name of a header", _read_header_name)]
KeyHeader = Annotated[str, Kind("the name of a header", _read_key_header)]
HeaderNames = Annotated[tuple[str, ...], list_of(_read_header_name)]
Origins = Annotated[tuple[str, ...], list_of(_read_origin)]
HttpUrl = Annotated[str, Kind("http://HOST:PORT/PATH", _read_http_url)]
HttpPath = Annotated[str, Kind("a path", _read_http_path)]
Level = Annotated[str, Kind(_LEVELS.words, _read_level)]
EventEndpoints = Annotated[
    Mapping[str, Sequence[str]], Kind("URL=tcp://HOST:PORT,...", parse_endpoints)
]
RedisUrl = Annotated[str, Kind("redis://HOST:PORT", redis_url)]
SchedulerName = Annotated[str, one_of(*QUEUE_SCHEDULERS)]
Policy = Annotated[str, Kind(f"one of {', '.join(POLICIES)}", _read_policy, POLICIES)]
