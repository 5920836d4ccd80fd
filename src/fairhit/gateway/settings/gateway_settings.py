"""Every setting of the gateway, declared once; flags, environment, YAML and pages follow."""

import copy
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from fairhit.core.cache.token_blocks import BLOCK_LEN
from fairhit.dispatch.queue_rules import MAX_HOLD_US
from fairhit.errors import ConfigError
from fairhit.gateway.auth.keys import parse_tenant_key
from fairhit.gateway.settings.files import read_text
from fairhit.gateway.settings.resilience import (
    BreakerSettings,
    HealthSettings,
    RetrySettings,
    TimeoutSettings,
)
from fairhit.gateway.settings.types import (
    KEY_FLAG,
    EventEndpoints,
    HeaderName,
    HeaderNames,
    HttpUrl,
    IdentityField,
    KeyHeader,
    Level,
    Limit,
    Names,
    Origins,
    Paths,
    Policy,
    PolicyName,
    Prepay,
    QueuePlace,
    RedisUrl,
    SchedulerName,
    Shares,
    TenantKeys,
    Text,
    UsageField,
    WorkerUrls,
    router_of,
)
from fairhit.policies.shared import SHARED
from fairhit.routers.d2lpm import WorkerCharge
from fairhit.settings import kinds
from fairhit.settings.declaration import dashed, read_fields, setting, settings_of


@dataclass(frozen=True, kw_only=True)
class ListenSettings:
    """Listeners."""

    host: Text = setting("127.0.0.1", "address to listen on", "ADDRESS")
    port: int = setting(8000, "port to listen on, 0 for any free one", "PORT", ge=0, le=65535)
    tls_cert_path: Path | None = setting(
        None, "certificate with which callers are served over TLS", "FILE", aliases=("server_cert_path",)
    )  # fmt: skip
    tls_key_path: Path | None = setting(
        None, "private key of the certificate", "FILE", aliases=("server_key_path",)
    )
    cors_allowed_origins: Origins = setting(
        (), "origins of web pages whose scripts may send requests, * for any", "ORIGIN", shape="many"
    )  # fmt: skip
    request_id_headers: HeaderNames = setting(
        (), "headers whose request id is echoed in the answer; a missing id is made", "NAME", shape="many"
    )  # fmt: skip
    client_timeout_secs: float = setting(
        60, "longest time for a request to arrive, then 408", "S", live=True, ge=0.01
    )
    drain_delay_secs: float = setting(
        0, "time after SIGTERM in which /readiness is 503 and callers are still served", "S",
        live=True, ge=0,
    )  # fmt: skip
    shutdown_timeout_secs: float = setting(
        30, "time to finish the requests in flight at shutdown", "S",
        live=True, aliases=("shutdown_grace_period_secs",), ge=0,
    )  # fmt: skip

    def longest_shutdown_s(self) -> float:
        """The longest time that requests in flight may delay the end of the process."""
        return self.drain_delay_secs + self.shutdown_timeout_secs


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """The engines."""

    worker_urls: WorkerUrls = setting(
        (), "the engines, http://HOST:PORT", "URL", shape="many", live=True, aliases=("static_backends",)
    )  # fmt: skip
    static_models: Names = setting(
        (), "model of each engine, in their order, instead of asking the engines", "MODEL",
        shape="many", live=True,
    )  # fmt: skip
    ca_cert_paths: Paths = setting(
        (), "certificate authorities for https engines, besides the system's", "FILE", shape="many"
    )
    worker_api_key: str | None = setting(
        None, "key that the gateway shows to the engines; better in FAIRHIT_WORKER_API_KEY", "KEY",
        aliases=("api_key",), secret=True,
    )  # fmt: skip

    def engines(self) -> dict[str, str | None]:
        """URL -> the model that a setting names for the engine, None where the engine is asked."""
        models = self.static_models or (None,) * len(self.worker_urls)
        return dict(zip(self.worker_urls, models, strict=True))


@dataclass(frozen=True, kw_only=True)
class RoutingSettings:
    """Fairness and locality."""

    policy: Policy = setting(
        "d2lpm", "router that chooses the engine of a request", "NAME", aliases=("routing_logic",)
    )
    routing_key_header: KeyHeader = setting(
        "x-smg-routing-key", "header whose value binds requests to one engine, for --policy sticky", "NAME",
        aliases=("session_key",),
    )  # fmt: skip
    worker_quantum: int = setting(
        16384, "Q^w of d2lpm: tokens of service that a client gets at one engine before others",
        "TOKENS", ge=1,
    )  # fmt: skip
    worker_overdraft: int = setting(
        0, "tokens beyond Q^w for a prompt that the engine has cached, for d2lpm", "TOKENS", ge=0
    )
    min_match: int = setting(
        64, "shortest cached prefix that counts for the choice of an engine", "TOKENS", ge=1
    )
    worker_charge: WorkerCharge = setting(
        "extend", "prompt tokens that d2lpm charges; extend: those to compute; input: all"
    )
    weights: Shares = setting({}, "clients' shares", "CLIENT=WEIGHT,...", live=True, shown="1 each")
    max_tree_size: int = setting(32768, "size of the prefix index of each engine", "CHUNKS", ge=1)
    tokenizer: Path | None = setting(
        None, "directory with a tokenizer.json: index blocks of tokens instead of bytes", "DIR"
    )

    def router(self) -> PolicyName:
        """The router that `policy` names, perhaps by another gateway's name."""
        return router_of(self.policy)

    def renamed(self) -> str | None:
        """A line about the router that another gateway's policy name stands for; None for our own name."""
        if self.policy == self.router():
            return None
        return f"--policy {self.policy}: another gateway's name; the router is {self.router()}"


@dataclass(frozen=True, kw_only=True)
class QueueSettings:
    """Queue at the gateway."""

    queue: QueuePlace = setting(
        "gateway",
        "where requests wait: at the gateway until an engine has capacity, or in the engines",
    )
    scheduler: SchedulerName = setting("dlpm", "policy that orders the queue", "NAME")
    quantum: int | None = setting(
        None, "Q^u of dlpm, fair and drr", "TOKENS", ge=1, shown="the policy's own"
    )
    cost: Annotated[str, kinds.COST] | None = setting(
        None, "cost of a request: linear:P,Q, context:OUTPUT,CONTEXT, engine, profiled, flops:MODEL, ...",
        "COST", shown="linear:1,2; fair engine",
    )  # fmt: skip
    overdraft: int | None = setting(
        None, "debt beyond its last admission up to which a client's cached prompts are sent, for fair",
        "TOKENS", ge=0, shown="1024, at most the quantum",
    )  # fmt: skip
    near: int | None = setting(
        None, "steps of matched tokens within which the client with the most credit is first, for fair",
        "TOKENS", ge=1, shown="256",
    )  # fmt: skip
    prepay: Prepay | None = setting(
        None, "outputs that fair charges when it sends a request", shown="expected"
    )
    queue_size: int = setting(
        512, "requests of one client that may wait here, then 429", "N", ge=0, live=True
    )
    queue_timeout_secs: float = setting(
        300, "longest wait here, then 503; 408 at --max-concurrent-requests", "S", gt=0, live=True
    )
    max_engine_requests: int | None = setting(
        None, "requests in flight at one engine", "N", ge=1, shown="learnt"
    )
    max_hold_secs: float = setting(
        MAX_HOLD_US // 10**6, "longest hold for the engine with the prompt", "S", ge=0, le=60
    )
    load_interval_secs: float = setting(
        0.25, "between two readings of a busy engine's load", "S", ge=0.01
    )


@dataclass(frozen=True, kw_only=True)
class CacheSettings:
    """Caches of the engines."""

    block_size: int = setting(
        BLOCK_LEN, "tokens of a block in the token index; best the engines' own", "TOKENS", ge=1
    )
    kv_events_port: int | None = setting(
        None, "port at which each engine's host publishes KV events, as 5557; needs --tokenizer",
        "PORT", ge=1, le=65535,
    )  # fmt: skip
    kv_events_replay_port: int | None = setting(
        None, "port at which each engine's host replays KV events, as 5558", "PORT", ge=1, le=65535
    )
    kv_events_endpoint: EventEndpoints = setting(
        {}, "where one engine publishes KV events, with an address for each rank",
        "URL=tcp://HOST:PORT,...", shape="again",
    )  # fmt: skip
    kv_events_replay_endpoint: EventEndpoints = setting(
        {}, "where that engine replays KV events, in the same order",
        "URL=tcp://HOST:PORT,...", shape="again",
    )  # fmt: skip
    kv_events_topic: str = setting("", "prefix of the topics to subscribe to", "TOPIC", shown="all")
    kv_events_max_blocks: int = setting(
        1 << 18, "blocks of one engine that the index remembers", "BLOCKS", ge=1
    )

    def has_kv_events(self) -> bool:
        """True if KV events of any engine are to be read."""
        return bool(self.kv_events_endpoint) or self.kv_events_port is not None


@dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """Clients."""

    tenant_api_key: TenantKeys = setting(
        (), "a client and its API key, plain or sha256:HEX", "TENANT:KEY",
        shape="again", live=True, secret=True,
    )  # fmt: skip
    keys_file: Path | None = setting(
        None, "file with lines TENANT:KEY or TENANT:sha256:HEX", "FILE", live=True
    )
    trust_tenant_header: bool = setting(
        False, "accept the tenant headers; only behind a proxy that sets them", live=True
    )
    tenant_header_name: HeaderName | None = setting(
        None, "the only tenant header, instead of the usual ones", "NAME"
    )
    identify_by_user: bool = setting(
        False, "take the body's `user` for the client where there is no key or header", live=True
    )
    identity_field: IdentityField = setting(
        "vllm",
        "engine whose field of the body carries the client; both: for a mixed fleet; none: no field",
    )
    isolate_prefixes: bool = setting(
        False, "give each client a prefix cache of its own, by a cache_salt in every body"
    )
    isolation_secret: Text | None = setting(
        None, "secret that salts are made from, the same for all gateways", "SECRET",
        secret=True, shown="one for each start",
    )  # fmt: skip
    usage_field: UsageField = setting(
        "stream_options", "field that asks streams for usage; none: their events are counted"
    )

    def keys(self) -> dict[bytes, str]:
        """Digest of an API key -> its client, from the flags and the keys file. Raises ConfigError."""
        lines = [(KEY_FLAG, text) for text in self.tenant_api_key]
        if self.keys_file is not None:
            lines += [
                (f"{self.keys_file}, line {number}", text)
                for number, text in enumerate(read_text(self.keys_file).splitlines(), start=1)
                if text.strip() and not text.lstrip().startswith("#")
            ]
        keys: dict[bytes, str] = {}
        for where, text in lines:
            client, digest = parse_tenant_key(text, where=where)
            if keys.setdefault(digest, client) != client:
                raise ConfigError(f"{where}: this key already belongs to another tenant")
        if self.keys_file is not None and not keys:
            raise ConfigError(
                f"{self.keys_file}: expected at least one line TENANT:KEY or TENANT:sha256:HEX"
            )
        return keys


@dataclass(frozen=True, kw_only=True)
class LimitSettings:
    """Limits."""

    max_concurrent_requests: Limit = setting(
        -1, "requests at all engines together; more wait, or get 429; -1: no limit", "N", live=True
    )
    max_client_requests: int = setting(
        1024, "requests in flight for one client, then 429", "N", live=True, ge=1
    )
    # Four million tokens are more than any prompt. Long bodies are read in steps (`api.long_body`), and
    # their memory is bounded for all requests together (`proxy.incoming_request`).
    max_payload_size: int = setting(
        16 << 20, "largest body, then 413", "BYTES", live=True, ge=1, shown="16 MiB"
    )
    max_connections: int = setting(8192, "connections from callers, then 503", "N", live=True, ge=1)
    max_address_connections: int | None = setting(
        None, "connections from one address; not behind a proxy", "N", live=True, ge=1
    )

    def max_sent(self) -> int | None:
        """The most requests at all engines together; None for no limit."""
        return None if self.max_concurrent_requests < 0 else self.max_concurrent_requests


@dataclass(frozen=True, kw_only=True)
class SharingSettings:
    """Several processes, several gateways."""

    processes: int = setting(
        1, "processes of this gateway on one port, each with a core of its own", "N", ge=1, le=256
    )
    share_url: RedisUrl | None = setting(
        None, "redis://HOST:PORT, where several gateways keep one shared ledger", "URL", secret=True
    )
    share_key: Text = setting("fairhit", "name of the shared ledger", "KEY")
    share_interval_secs: float = setting(
        0.1, "between two exchanges with the shared ledger", "S", ge=0.01, le=10
    )

    def shares(self) -> bool:
        """True if there is a shared ledger at all."""
        return self.share_url is not None or self.processes > 1


@dataclass(frozen=True, kw_only=True)
class AdminSettings:
    """The admin surface."""

    admin_api_key: str | None = setting(
        None, "key for /workers, /scheduler and their like; without one only this machine has access", "KEY",
        live=True, secret=True,
    )  # fmt: skip
    prometheus_port: int | None = setting(
        None, "port of its own for /metrics, 0 for any free one", "PORT", ge=0, le=65535
    )
    prometheus_host: Text | None = setting(
        None, "address for --prometheus-port", "ADDRESS", shown="--host"
    )
    log_level: Level = setting("info", "debug, info, warning, error", "LEVEL", live=True)

    def level(self) -> int:
        """The level as a number of `logging`."""
        return logging.getLevelNamesMapping()[self.log_level.upper()]


@dataclass(frozen=True, kw_only=True)
class ObservabilitySettings:
    """Metrics, log and traces."""

    metrics_max_clients: int = setting(
        1000, "clients with a label of their own in metrics; the others share `other`", "N", ge=1, le=100_000
    )  # fmt: skip
    access_log: Text | None = setting(
        None, "file for a line of JSON for each request; -: standard output", "FILE"
    )
    otlp_traces_endpoint: HttpUrl | None = setting(
        None, "where traces are sent by OTLP over HTTP", "URL", aliases=("otlp_endpoint",)
    )
    trace_ratio: float = setting(
        0.01, "share of the requests without a trace for which one is begun", "SHARE", ge=0, le=1
    )


SECTIONS: tuple[type[Any], ...] = (
    ListenSettings, EngineSettings, HealthSettings, TimeoutSettings, RetrySettings, BreakerSettings,
    RoutingSettings, QueueSettings, CacheSettings, ClientSettings, LimitSettings, SharingSettings,
    AdminSettings, ObservabilitySettings,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class GatewaySettings(
    ListenSettings,
    EngineSettings,
    HealthSettings,
    TimeoutSettings,
    RetrySettings,
    BreakerSettings,
    RoutingSettings,
    QueueSettings,
    CacheSettings,
    ClientSettings,
    LimitSettings,
    SharingSettings,
    AdminSettings,
    ObservabilitySettings,
):
    """The settings of a gateway; field names are the flags with underscores. Raises ConfigError."""

    def __post_init__(self) -> None:
        read_fields(self)
        if (self.tls_cert_path is None) != (self.tls_key_path is None):
            raise ConfigError("tls-cert-path: expected together with tls-key-path")
        if self.static_models and len(self.static_models) != len(self.worker_urls):
            engines, models = len(self.worker_urls), len(self.static_models)
            raise ConfigError(
                f"static-models: expected one for each of {engines} engines, got {models}"
            )
        self._check_metrics_ports()

    def _check_metrics_ports(self) -> None:
        """Refuse metrics ports, one for each process, that are too high or include the callers' port."""
        first = self.prometheus_port
        if first and first + self.processes > 65536:
            last = 65536 - self.processes
            raise ConfigError(
                f"prometheus-port: expected at most {last} with {self.processes} processes"
            )
        on_one_address = self.prometheus_host in {None, self.host}
        if first and on_one_address and first <= self.port < first + self.processes:
            raise ConfigError(
                f"prometheus-port: expected other ports than the callers', {self.port}"
            )

    def replaced(self, **values: Any) -> Self:
        """A copy with other values, which are not checked again."""
        assert values.keys() <= settings_of(GatewaySettings).keys(), values
        made = copy.copy(self)
        vars(made).update(values)
        return made

    def as_json(self) -> dict[str, Any]:
        """The settings that have a value, as JSON and YAML can say them; keys of tenants stay hashed."""
        found = {name: getattr(self, name) for name in settings_of(GatewaySettings)}
        return {name: _plain(value) for name, value in found.items() if value is not None}

    def remarks(self) -> list[str]:
        """A line for each setting of another gateway's that means something else here."""
        lines = [self.renamed()]
        is_open = not self.tenant_api_key and self.keys_file is None
        if self.worker_api_key is not None and is_open and not self.trust_tenant_header:
            lines.append(
                "--worker-api-key (--api-key) is shown to the engines; callers need no key:"
                " --tenant-api-key or --keys-file asks for one"
            )
        return [line for line in lines if line is not None]

    def named_files(self) -> list[Path]:
        """Files besides those of settings whose changes matter."""
        named = (self.keys_file, self.tls_cert_path, self.tls_key_path)
        return [path for path in named if path is not None]

    def without_effect(self) -> list[str]:
        """A line for each setting that was changed and needs another one to do anything."""
        needs = {
            "isolation_secret": (self.isolate_prefixes, "--isolate-prefixes"),
            "trace_ratio": (self.otlp_traces_endpoint is not None, "--otlp-traces-endpoint"),
            "share_url": (
                self.queue != "engine" and self.scheduler in SHARED,
                f"--scheduler {' or '.join(SHARED)} here",
            ),
            "share_key": (self.share_url is not None, "--share-url"),
            "share_interval_secs": (self.shares(), "--share-url or --processes"),
            "kv_events_replay_port": (self.kv_events_port is not None, "--kv-events-port"),
            "kv_events_replay_endpoint": (bool(self.kv_events_endpoint), "--kv-events-endpoint"),
            **dict.fromkeys(
                ("kv_events_topic", "kv_events_max_blocks"),
                (self.has_kv_events(), "--kv-events-port or --kv-events-endpoint"),
            ),
            "routing_key_header": (self.router() == "sticky", "--policy sticky"),
            **dict.fromkeys(
                ("worker_quantum", "worker_overdraft", "min_match", "worker_charge"),
                (self.router() == "d2lpm", "--policy d2lpm"),
            ),
            "prometheus_host": (self.prometheus_port is not None, "--prometheus-port"),
            **dict.fromkeys(
                settings_of(QueueSettings), (self.queue != "engine", "--queue gateway")
            ),
        }
        declared = settings_of(GatewaySettings)
        lines = [
            f"--{dashed(name)} has no effect without {needed}"
            for name, (effective, needed) in needs.items()
            if name != "queue" and not effective and getattr(self, name) != declared[name].default
        ]
        if self.processes > 1 and self.queue != "engine" and self.scheduler not in SHARED:
            lines.append(
                f"--processes {self.processes}: under --scheduler {self.scheduler} each process is fair among"
                f" its own callers only; {' and '.join(SHARED)} share one ledger"
            )
        return lines


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


# Settings that a reload applies.
LIVE = frozenset(name for name, each in settings_of(GatewaySettings).items() if each.live)
