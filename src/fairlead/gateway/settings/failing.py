"""Settings of what happens when an engine fails: retries, the circuit breaker, patience."""

from fairlead.gateway.breaker import BreakerRules
from fairlead.gateway.retry import RetryRules
from fairlead.gateway.settings.declaring import Group, setting


class Retrying(Group):
    """Retries, before the first byte of an answer."""

    retry_max_retries: int = setting(
        5, "of one request, each at another engine", "N", live=True, ge=0, le=1000
    )
    retry_initial_backoff_ms: float = setting(50, "before the first", "MS", live=True, ge=0)
    retry_max_backoff_ms: float = setting(30_000, "longest wait", "MS", live=True, ge=0)
    retry_backoff_multiplier: float = setting(
        1.5, "each wait to the one before", "X", live=True, ge=1, le=100
    )
    retry_jitter_factor: float = setting(
        0.2, "a wait is that much longer or shorter", "X", live=True, ge=0, le=1
    )
    retry_budget_percent: float = setting(
        20, "retries to requests, over ten seconds", "PERCENT", live=True, ge=0
    )
    retry_budget_floor: int = setting(
        50, "retries in ten seconds that are always allowed", "N", live=True, ge=0
    )
    disable_retries: bool = setting(False, "the first failure is the answer", live=True)

    def retry_rules(self) -> RetryRules:
        """The same, as the retries want it."""
        return RetryRules(
            max_retries=0 if self.disable_retries else self.retry_max_retries,
            initial_s=self.retry_initial_backoff_ms / 1000,
            max_s=self.retry_max_backoff_ms / 1000,
            multiplier=self.retry_backoff_multiplier,
            jitter=self.retry_jitter_factor,
            budget=self.retry_budget_percent / 100,
            floor=self.retry_budget_floor,
        )


class Breaking(Group):
    """Circuit breaker of each engine."""

    cb_failure_threshold: int = setting(
        10, "failures that open it, where three in four answers are", "N", live=True, ge=1, le=10_000
    )  # fmt: skip
    cb_window_duration_secs: float = setting(120, "within which", "S", live=True, gt=0)
    cb_timeout_duration_secs: float = setting(
        60, "open, until a few requests are tried", "S", live=True, gt=0
    )
    cb_success_threshold: int = setting(
        3, "requests tried, which must succeed to close it", "N", live=True, ge=1
    )
    disable_circuit_breaker: bool = setting(False, "failures take no engine out", live=True)

    def breaker_rules(self) -> BreakerRules:
        """The same, as the breakers want it."""
        return BreakerRules(
            failures=self.cb_failure_threshold,
            window_s=self.cb_window_duration_secs,
            open_s=self.cb_timeout_duration_secs,
            successes=self.cb_success_threshold,
        )


class Patience(Group):
    """Patience with the engines."""

    connect_timeout_secs: float = setting(5, "to connect to an engine", "S", live=True, gt=0)
    first_byte_timeout_secs: float = setting(
        0, "for a stream's first event, 0 for no limit", "S", live=True, ge=0
    )
    idle_timeout_secs: float = setting(
        600, "between two pieces of an answer, 0 for no limit", "S", live=True, ge=0
    )
    request_timeout_secs: float = setting(1800, "longest answer, then 504", "S", live=True, gt=0)
