"""Settings of failing engines: timeouts, retries, circuit breakers, health checks."""

from dataclasses import dataclass

from fairhit.gateway.pool.circuit_breaker import BreakerRules
from fairhit.gateway.pool.retry import RetryRules
from fairhit.gateway.settings.types import HttpPath
from fairhit.settings.declaration import setting


@dataclass(frozen=True, kw_only=True)
class HealthSettings:
    """Health of the engines."""

    health_check_interval_secs: float = setting(
        5, "between two probes of an engine", "S", live=True, ge=0.01
    )
    health_check_timeout_secs: float = setting(5, "longest answer to a probe", "S", live=True, gt=0)
    health_check_endpoint: HttpPath = setting("/health", "path that is probed", "PATH", live=True)
    health_failure_threshold: int = setting(
        3, "failed probes until an engine is down", "N", live=True, ge=1
    )
    health_success_threshold: int = setting(
        2, "good probes until an engine that was down is up again", "N", live=True, ge=1
    )
    disable_health_check: bool = setting(
        False, "probe only engines that are not up, until they are", live=True
    )


@dataclass(frozen=True, kw_only=True)
class TimeoutSettings:
    """Timeouts of the engines."""

    connect_timeout_secs: float = setting(5, "to connect to an engine", "S", live=True, gt=0)
    first_byte_timeout_secs: float = setting(
        0, "until a stream's first event, 0 for no limit", "S", live=True, ge=0
    )
    idle_timeout_secs: float = setting(
        600, "between two pieces of an answer, 0 for no limit", "S", live=True, ge=0
    )
    request_timeout_secs: float = setting(
        1800, "for the whole answer, then 504", "S", live=True, gt=0
    )


@dataclass(frozen=True, kw_only=True)
class RetrySettings:
    """Retries, before the first byte of an answer."""

    retry_max_retries: int = setting(
        5, "retries of one request, each at another engine", "N", live=True, ge=0, le=1000
    )
    retry_initial_backoff_ms: float = setting(
        50, "wait before the first retry", "MS", live=True, ge=0
    )
    retry_max_backoff_ms: float = setting(30_000, "longest wait", "MS", live=True, ge=0)
    retry_backoff_multiplier: float = setting(
        1.5, "each wait as a multiple of the one before", "X", live=True, ge=1, le=100
    )
    retry_jitter_factor: float = setting(
        0.2, "share by which a wait is randomly longer or shorter", "X", live=True, ge=0, le=1
    )
    retry_budget_percent: float = setting(
        20, "retries, as percent of the requests of the last ten seconds", "PERCENT", live=True, ge=0
    )  # fmt: skip
    retry_budget_floor: int = setting(
        50, "retries in ten seconds that are always allowed", "N", live=True, ge=0
    )
    disable_retries: bool = setting(False, "answer with the first failure", live=True)

    def retry_rules(self) -> RetryRules:
        """The rules for retries that these settings give."""
        return RetryRules(
            max_retries=0 if self.disable_retries else self.retry_max_retries,
            initial_s=self.retry_initial_backoff_ms / 1000,
            max_s=self.retry_max_backoff_ms / 1000,
            multiplier=self.retry_backoff_multiplier,
            jitter=self.retry_jitter_factor,
            budget=self.retry_budget_percent / 100,
            floor=self.retry_budget_floor,
        )


@dataclass(frozen=True, kw_only=True)
class BreakerSettings:
    """Circuit breaker of each engine."""

    cb_failure_threshold: int = setting(
        10, "failures that open an engine's breaker, if at least three in four answers fail", "N",
        live=True, ge=1, le=10_000,
    )  # fmt: skip
    cb_window_duration_secs: float = setting(
        120, "time within which failures are counted", "S", live=True, gt=0
    )
    cb_timeout_duration_secs: float = setting(
        60, "time that a breaker stays open before requests are tried", "S", live=True, gt=0
    )
    cb_success_threshold: int = setting(
        3, "requests that are tried then, and must succeed to close the breaker", "N",
        live=True, ge=1,
    )  # fmt: skip
    disable_circuit_breaker: bool = setting(
        False, "keep sending requests to engines that fail", live=True
    )

    def breaker_rules(self) -> BreakerRules:
        """The rules for circuit breakers that these settings give."""
        return BreakerRules(
            failures=self.cb_failure_threshold,
            window_s=self.cb_window_duration_secs,
            open_s=self.cb_timeout_duration_secs,
            successes=self.cb_success_threshold,
        )
