"""Settings of the callers' side: where the gateway listens, and what one caller may take up."""

import logging
from pathlib import Path
from typing import Self

from pydantic import model_validator

from fairlead.gateway.settings.declaring import Group, setting
from fairlead.gateway.settings.values import HeaderNames, Level, Limit, Origins, Text


class Listening(Group):
    """Where it listens."""

    host: Text = setting("127.0.0.1", "address to listen on", "ADDRESS")
    port: int = setting(8000, "port to listen on, 0 for any free one", "PORT", ge=0, le=65535)
    tls_cert_path: Path | None = setting(
        None, "speak TLS, by this certificate", "FILE", also=("server_cert_path",)
    )
    tls_key_path: Path | None = setting(
        None, "the key of the certificate", "FILE", also=("server_key_path",)
    )
    cors_allowed_origins: Origins = setting(
        (), "web pages that may ask, * for any", "ORIGIN", shape="many"
    )
    request_id_headers: HeaderNames = setting(
        (), "an id in one of these is echoed; a missing one is made", "NAME", shape="many"
    )
    client_timeout_secs: float = setting(
        60, "longest a request may arrive, then 408", "S", live=True, ge=0.01
    )
    drain_delay_secs: float = setting(
        0, "after SIGTERM, unready but still listening", "S", live=True, ge=0
    )
    shutdown_timeout_secs: float = setting(
        30, "to finish what is in flight", "S", live=True, also=("shutdown_grace_period_secs",), ge=0
    )  # fmt: skip

    @model_validator(mode="after")
    def _certificate_and_key(self) -> Self:
        if (self.tls_cert_path is None) != (self.tls_key_path is None):
            raise ValueError("tls-cert-path: expected together with tls-key-path")
        return self

    def patience_s(self) -> float:
        """How long what is in flight may keep it from ending."""
        return self.drain_delay_secs + self.shutdown_timeout_secs


class Administering(Group):
    """The admin surface."""

    admin_api_key: str | None = setting(
        None, "for /workers and its like; without one only this machine may", "KEY",
        live=True, secret=True,
    )  # fmt: skip
    prometheus_port: int | None = setting(
        None, "/metrics there, and only there; 0 for any free one", "PORT", ge=0, le=65535
    )
    prometheus_host: Text | None = setting(None, "and on this address", "ADDRESS")
    log_level: Level = setting("info", "debug, info, warning, error", "LEVEL", live=True)

    def level(self) -> int:
        """The same, as logging wants it."""
        return logging.getLevelNamesMapping()[self.log_level.upper()]


class Limits(Group):
    """Limits."""

    max_concurrent_requests: Limit = setting(
        -1, "at the engines, of all clients: more wait, or get 429; -1: no limit", "N", live=True
    )
    max_client_requests: int = setting(1024, "in flight per client, then 429", "N", live=True, ge=1)
    # Four million tokens are more than any prompt. Long bodies are read in steps (`gateway.long_bodies`), and
    # what they take of memory is bounded for all together (`gateway.incoming`).
    max_payload_size: int = setting(
        16 << 20, "largest body, then 413 (16 MiB)", "BYTES", live=True, ge=1
    )
    max_connections: int = setting(8192, "connections from callers, then 503", "N", live=True, ge=1)
    max_address_connections: int | None = setting(
        None, "of these from one address, where callers connect by themselves", "N", live=True, ge=1
    )

    def max_sent(self) -> int | None:
        """The most requests at all engines together, None: no limit."""
        return None if self.max_concurrent_requests < 0 else self.max_concurrent_requests
