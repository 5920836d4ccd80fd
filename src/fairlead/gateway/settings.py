"""The gateway's settings: the one place that reads its flags, its files and the environment.

A setting comes from a flag, else from the `--config` file (YAML, the same names), else from its
default here. Whatever is wrong is one line that names the source, the setting and what was expected.
"""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from fairlead.core.service import parse_weight
from fairlead.errors import ConfigError
from fairlead.gateway.identity import parse_tenant_key
from fairlead.routers.d2lpm import WorkerCharge

# The engines' own key is a secret: it comes from the environment, never from the command line.
WORKER_KEY_VARIABLE = "FAIRLEAD_WORKER_API_KEY"

PolicyName = Literal["d2lpm", "round-robin", "least-loaded"]
IdentityField = Literal["vllm", "none"]


def parse_worker_url(value: object) -> str:
    """`http://host:port`, perhaps with a path under which the engine is found."""
    text = str(value).rstrip("/")
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("expected http://HOST:PORT")
    if parts.username or parts.password:
        raise ValueError("expected no user or password in the URL")
    _ = parts.port  # raises ValueError by itself
    return text


def _weights(value: object) -> Mapping[str, str]:
    """`a=2,b=1` or a mapping; each weight is checked, and kept as text for exactness."""
    if isinstance(value, str):
        pairs = [pair.partition("=") for pair in value.split(",") if pair]
        if not all(equals and client for client, equals, _ in pairs):
            raise ValueError("expected CLIENT=WEIGHT,...")
        value = {client: weight for client, _, weight in pairs}
    if not isinstance(value, Mapping):
        raise ValueError("expected CLIENT=WEIGHT,...")
    for client, weight in value.items():
        try:
            parse_weight(weight, where=f"weight of client {client!r}")
        except ConfigError as error:
            raise ValueError(str(error)) from None
    return {str(client): str(weight) for client, weight in value.items()}


WorkerUrl = Annotated[str, BeforeValidator(parse_worker_url)]


class GatewaySettings(BaseModel):
    """Everything an operator can set; field names are the flags with underscores."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    worker_urls: tuple[WorkerUrl, ...] = ()
    policy: PolicyName = "d2lpm"
    worker_quantum: int = Field(default=16384, ge=1)
    min_match: int = Field(default=64, ge=1)
    worker_charge: WorkerCharge = "extend"
    weights: Annotated[Mapping[str, str], BeforeValidator(_weights)] = Field(default_factory=dict)
    tenant_api_key: tuple[str, ...] = Field(default=(), repr=False)
    keys_file: Path | None = None
    trust_tenant_header: bool = False
    identify_by_user: bool = False
    identity_field: IdentityField = "vllm"
    max_client_requests: int = Field(default=1024, ge=1)
    max_tree_size: int = Field(default=32768, ge=1)
    tokenizer: Path | None = None
    # Bodies are parsed on the event loop, where nothing else moves meanwhile. Four million tokens are
    # more than any prompt, and the worst 16 MiB take a second, which probes and callers survive.
    max_payload_size: int = Field(default=16 << 20, ge=1)
    max_connections: int = Field(default=8192, ge=1)
    request_timeout_secs: float = Field(default=1800, gt=0)
    client_timeout_secs: float = Field(default=60, gt=0)
    health_check_interval_secs: float = Field(default=5, gt=0)
    health_check_timeout_secs: float = Field(default=5, gt=0)
    health_failure_threshold: int = Field(default=3, ge=1)
    shutdown_timeout_secs: float = Field(default=30, ge=0)
    worker_api_key: str | None = Field(default=None, repr=False)

    def keys(self) -> dict[str, str]:
        """API key -> client, from the flags and the keys file. Raises ConfigError."""
        lines = [("--tenant-api-key", text) for text in self.tenant_api_key]
        if self.keys_file is not None:
            lines += [
                (f"{self.keys_file}, line {number}", text)
                for number, text in enumerate(_read(self.keys_file).splitlines(), start=1)
                if text.strip() and not text.lstrip().startswith("#")
            ]
        keys: dict[str, str] = {}
        for where, text in lines:
            client, key = parse_tenant_key(text, where=where)
            if keys.setdefault(key, client) != client:
                raise ConfigError(f"{where}: this key already belongs to another tenant")
        if self.keys_file is not None and not keys:
            raise ConfigError(f"{self.keys_file}: expected at least one line TENANT:KEY")
        return keys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The gateway's flags; what is not given stays out of the namespace."""
    for name, options in _FLAGS.items():
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, dest=name, default=argparse.SUPPRESS, **options)
    parser.add_argument("--config", metavar="FILE", help="YAML file with settings; flags win")


def from_arguments(arguments: argparse.Namespace) -> GatewaySettings:
    """The settings that flags, file and environment give. Raises ConfigError."""
    given = {name: value for name, value in vars(arguments).items() if name in _FLAGS}
    config = getattr(arguments, "config", None)
    values, places = read_config(Path(config)) if config else ({}, {})
    key = os.environ.get(WORKER_KEY_VARIABLE)
    if key:
        values["worker_api_key"] = key
    places |= {name: "--" + name.replace("_", "-") for name in given}
    return make({**values, **given}, where=config or "environment", places=places)


def read_config(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The settings in a YAML file, dashes or underscores, and where each stands. Raises ConfigError."""
    text = _read(path)
    try:
        content, node = yaml.safe_load(text), yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{path}{line}: not valid YAML") from None
    if content is None:
        return {}, {}
    if not isinstance(content, dict) or not isinstance(node, yaml.MappingNode):
        raise ConfigError(f"{path}: expected settings, one `name: value` a line")
    places = {
        key.value.replace("-", "_"): f"{path}, line {key.start_mark.line + 1}: {key.value}"
        for key, _ in node.value
        if isinstance(key, yaml.ScalarNode)
    }
    return {str(name).replace("-", "_"): value for name, value in content.items()}, places


def make(
    values: Mapping[str, Any], *, where: str, places: Mapping[str, str] | None = None
) -> GatewaySettings:
    """Validated settings, from `where`, or each from its place. Raises ConfigError, for one fault."""
    try:
        return GatewaySettings.model_validate(dict(values))
    except ValidationError as failure:
        fault = failure.errors(include_url=False)[0]
        name = str(fault["loc"][0]) if fault["loc"] else "settings"
        source = (places or {}).get(name, f"{where}: {name.replace('_', '-')}")
        if fault["type"] == "extra_forbidden":
            raise ConfigError(f"{source}: no such setting") from None
        message = fault["msg"].removeprefix("Value error, ")
        raise ConfigError(f"{source}: {message[0].lower()}{message[1:]}") from None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(f"{path}: cannot be read: {reason}") from None


_FLAGS: dict[str, dict[str, Any]] = {
    "host": {"metavar": "ADDRESS", "help": "address to listen on (127.0.0.1)"},
    "port": {"metavar": "PORT", "help": "port to listen on, 0 for any free one (8000)"},
    "worker_urls": {"nargs": "+", "metavar": "URL", "help": "the engines, http://HOST:PORT"},
    "policy": {"choices": get_args(PolicyName), "help": "how a worker is chosen (d2lpm)"},
    "worker_quantum": {"metavar": "TOKENS", "help": "Q^w of D2LPM (16384)"},
    "min_match": {"metavar": "TOKENS", "help": "a shorter cached prefix does not count (64)"},
    "worker_charge": {
        "choices": get_args(WorkerCharge),
        "help": "prompt tokens charged: those to compute, or all (extend)",
    },
    "weights": {"metavar": "CLIENT=WEIGHT,...", "help": "shares; 1 for who is not named"},
    "tenant_api_key": {
        "action": "append",
        "metavar": "TENANT:KEY",
        "help": "a client and its key; may be repeated",
    },
    "keys_file": {"metavar": "FILE", "help": "lines of TENANT:KEY"},
    "trust_tenant_header": {
        "action": "store_true",
        "help": "believe the tenant headers: only behind a proxy that sets them",
    },
    "identify_by_user": {
        "action": "store_true",
        "help": "without a key or header, believe the body's `user`",
    },
    "identity_field": {
        "choices": get_args(IdentityField),
        "help": "none: bodies reach the engine untouched, without the client (vllm: vllm_xargs)",
    },
    "max_client_requests": {"metavar": "N", "help": "in flight per client, then 429 (1024)"},
    "max_tree_size": {"metavar": "CHUNKS", "help": "prefix index per worker (32768)"},
    "tokenizer": {"metavar": "DIR", "help": "index tokens, by DIR/tokenizer.json (bytes)"},
    "max_payload_size": {"metavar": "BYTES", "help": "largest body, then 413 (16 MiB)"},
    "max_connections": {"metavar": "N", "help": "connections from callers, then 503 (8192)"},
    "request_timeout_secs": {"metavar": "S", "help": "longest answer, then 504 (1800)"},
    "client_timeout_secs": {"metavar": "S", "help": "longest a request may arrive, then 408 (60)"},
    "health_check_interval_secs": {"metavar": "S", "help": "between probes of an engine (5)"},
    "health_check_timeout_secs": {"metavar": "S", "help": "a probe's patience (5)"},
    "health_failure_threshold": {"metavar": "N", "help": "failed probes until it is down (3)"},
    "shutdown_timeout_secs": {"metavar": "S", "help": "to finish what is in flight (30)"},
}
