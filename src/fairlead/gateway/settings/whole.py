"""All settings in one validated object, group by group."""

from pathlib import Path
from typing import Self

from pydantic import model_validator

from fairlead.gateway.settings.caching import Caching
from fairlead.gateway.settings.declaring import Group, declared
from fairlead.gateway.settings.engines import Engines, Health
from fairlead.gateway.settings.failing import Breaking, Patience, Retrying
from fairlead.gateway.settings.identifying import Identifying
from fairlead.gateway.settings.listening import Administering, Limits, Listening
from fairlead.gateway.settings.queueing import Waiting
from fairlead.gateway.settings.routing import Routing
from fairlead.gateway.settings.seeing import Watching
from fairlead.gateway.settings.sharing import Sharing

GROUPS: tuple[type[Group], ...] = (
    Listening, Engines, Health, Patience, Retrying, Breaking, Routing, Waiting, Caching, Identifying,
    Limits, Sharing, Administering, Watching,
)  # fmt: skip


class GatewaySettings(
    Listening,
    Engines,
    Health,
    Patience,
    Retrying,
    Breaking,
    Routing,
    Waiting,
    Caching,
    Identifying,
    Limits,
    Sharing,
    Administering,
    Watching,
):
    """Everything an operator can set; field names are the flags with underscores."""

    @model_validator(mode="after")
    def _metrics_ports(self) -> Self:
        """Each process has one of its own, from `prometheus_port` on; 0 stands for any free one."""
        first = self.prometheus_port
        if first and first + self.processes > 65536:
            last = 65536 - self.processes
            raise ValueError(
                f"prometheus-port: expected at most {last} with {self.processes} processes"
            )
        on_one_address = self.prometheus_host in {None, self.host}
        if first and on_one_address and first <= self.port < first + self.processes:
            raise ValueError(
                f"prometheus-port: expected other ports than the callers', {self.port}"
            )
        return self

    def remarks(self) -> list[str]:
        """A line for each setting of another gateway's that means something else here."""
        lines = [self.renamed()]
        asks_nobody = not self.tenant_api_key and self.keys_file is None
        if self.worker_api_key is not None and asks_nobody and not self.trust_tenant_header:
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
                self.queue != "engine" and self.scheduler == "dlpm",
                "--scheduler dlpm here",
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
                ("worker_quantum", "min_match", "worker_charge"),
                (self.router() == "d2lpm", "--policy d2lpm"),
            ),
            "prometheus_host": (self.prometheus_port is not None, "--prometheus-port"),
            **dict.fromkeys(
                Waiting.model_fields, (self.queue != "engine", "--queue auto or gateway")
            ),
        }
        return [
            f"--{name.replace('_', '-')} has no effect without {needed}"
            for name, (effective, needed) in needs.items()
            if name != "queue"
            and not effective
            and getattr(self, name)
            != type(self).model_fields[name].get_default(call_default_factory=True)
        ]


LIVE = frozenset(
    name for name, field in GatewaySettings.model_fields.items() if declared(field, "live")
)
