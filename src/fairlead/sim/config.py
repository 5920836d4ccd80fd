"""What a simulation is made of: one frozen value, checked as a whole before anything runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fairlead.core.request import ClientId
from fairlead.core.service import Cost
from fairlead.errors import ConfigError
from fairlead.schedulers import MISFIT
from fairlead.sim.constants import BUILT_IN, Constants

MISFITS = ("stop", "skip")
INBATCH = ("share", "compute")
ADMISSIONS = ("reserve", "artifact", "optimistic")
# The engine that an admission rule is meant for, where none is named.
HOST_OF = {None: "ideal", "reserve": "ideal", "artifact": "artifact", "optimistic": "vllm"}
# More than these is a slip of the finger, found out before hours and memory are gone.
MAX_REPLICAS = 10_000
MAX_KV_TOKENS = 10**9  # hundreds of times what one GPU holds


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """Worker `worker` comes up or goes down at a time."""

    time_us: int
    worker: int
    up: bool

    def __str__(self) -> str:
        seconds = f"{self.time_us / 1e6:f}".rstrip("0").rstrip(".")
        return f"--{'join' if self.up else 'fail'} {self.worker}@{seconds}"


@dataclass(frozen=True, kw_only=True, slots=True)
class SimConfig:
    """The settings of `fairlead simulate` (docs/reference/simulate.md). None: what the parts default to.

    Lengths are in tokens, times in microseconds. Raises ConfigError if two settings contradict.
    """

    scheduler: str = "dlpm"
    router: str = "d2lpm"
    replicas: int = 1
    host: str = "ideal"
    admission: str | None = None
    inbatch: str | None = None
    misfit: str | None = None
    max_misfits: int | None = None
    max_running: int = 256
    batch_tokens: int | None = None
    kv_tokens: int | None = None
    step_time: str = "a10g:llama-3.2-3b"
    constants: Constants = BUILT_IN
    jitter: float = 0.0
    quantum: int | None = None
    charge: str | None = None
    max_overtake: int | None = None
    fallback: int | None = None
    cost: Cost | None = None
    weights: Mapping[ClientId, object] = field(default_factory=dict)
    worker_quantum: int | None = None
    worker_charge: str | None = None
    min_match: int | None = None
    central_round_trip_us: int | None = None
    central_work_us: int | None = None
    rpm_limit: int | None = None
    rpm_window_us: int | None = None
    rpm_mode: str | None = None
    changes: tuple[Change, ...] = ()
    event_delay_us: int = 0
    seed: int = 0
    skips: bool = True

    def __post_init__(self) -> None:
        _require("replicas", self.replicas, most=MAX_REPLICAS)
        _require("kv-tokens", self.kv_tokens, most=MAX_KV_TOKENS)
        if self.max_running < 1:
            raise ConfigError(f"max-running: expected at least 1, got {self.max_running}")
        _check_changes(self.replicas, self.changes)

    @property
    def skips_misfits(self) -> bool:
        """Whether a look goes on past a request that does not fit."""
        return (self.misfit or MISFIT.get(self.scheduler, "stop")) == "skip"

    @property
    def workers(self) -> int:
        """One more than the highest number of a worker."""
        return max([self.replicas, *(change.worker + 1 for change in self.changes)])


def _require(name: str, value: int | None, *, most: int) -> None:
    if value is not None and not 1 <= value <= most:
        raise ConfigError(f"{name}: expected 1 to {most:,}, got {value}")


def _check_changes(replicas: int, changes: tuple[Change, ...]) -> None:
    """Who fails is up, who joins is not. Raises ConfigError."""
    up = dict.fromkeys(range(replicas), True)
    numbers = replicas + sum(change.up for change in changes)
    for change in sorted(changes, key=lambda each: each.time_us):
        if change.up and change.worker >= numbers:
            raise ConfigError(f"{change}: expected a worker below {numbers}, as many as ever join")
        if up.get(change.worker, False) == change.up:
            state = "up" if change.up else "not up"
            raise ConfigError(f"{change}: worker {change.worker} is {state} then")
        up[change.worker] = change.up
