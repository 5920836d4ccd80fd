"""The settings of a simulation: one frozen value, checked as a whole before the run."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fairhit.core.costs import parse_cost
from fairhit.core.request import ClientId
from fairhit.core.service import Cost
from fairhit.errors import ConfigError
from fairhit.settings.declaration import check_fields, setting, settings_of
from fairhit.settings.kinds import MICROSECONDS, WEIGHTS, Kind
from fairhit_lab.baselines import (
    ALL_ON_UNFIT,
    ALL_ROUTERS,
    ALL_SCHEDULERS,
    CENTRAL_ROUTERS,
    FLEET,
)
from fairhit_lab.sim.hardware.tables import BUILT_IN, Constants, read_constants

# The engine that an admission rule is meant for, where none is named.
HOST_OF = {None: "ideal", "reserve": "ideal", "artifact": "artifact", "optimistic": "vllm"}
# More would be a mistake, found out before hours and memory are spent.
MAX_REPLICAS = 10_000
MAX_KV_TOKENS = 10**9  # hundreds of times what one GPU holds


TABLES = Kind("a YAML file", lambda path: read_constants(Path(str(path))), reads_text=True)
COST = Kind("a cost", lambda text: parse_cost(str(text), where="--cost"), reads_text=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerChange:
    """Worker `worker` comes up or goes down at a time."""

    time_us: int
    worker: int
    up: bool

    def __str__(self) -> str:
        seconds = f"{self.time_us / 1e6:f}".rstrip("0").rstrip(".")
        return f"--{'join' if self.up else 'fail'} {self.worker}@{seconds}"


@dataclass(frozen=True, kw_only=True, slots=True)
class SimConfig:
    """The settings of `fairhit simulate`; None is the default of the part that a setting belongs to (`of`).

    Lengths are in tokens, times in microseconds. Raises ConfigError if two settings contradict.
    """

    replicas: int = setting(
        1, "number of engines, all alike", "N", of="cluster", ge=1, le=MAX_REPLICAS
    )
    router: str = setting(
        "d2lpm", "router that chooses the engine of a request; none is asked with one replica",
        of="cluster", choices=(*ALL_ROUTERS, *CENTRAL_ROUTERS, FLEET),
    )  # fmt: skip
    engine_scheduler: str | None = setting(
        None, "policy of the engines behind router fleet, which orders the requests that they have",
        of="fleet", choices=("fcfs", "lpm", "dlpm", "fair", "vtc"), shown="fcfs",
    )  # fmt: skip
    engine_reports: str | None = setting(
        None, "what the engines behind router fleet report: their load and memory, or the load alone",
        of="fleet", choices=("memory", "load"), shown="memory",
    )  # fmt: skip
    decision_us: Annotated[int, MICROSECONDS] | None = setting(
        None, "time that router fleet takes for each request, one after the other", "SECONDS",
        of="fleet", flag="decision-time", shown="0.0001",
    )  # fmt: skip
    transit_us: Annotated[int, MICROSECONDS] | None = setting(
        None, "time from router fleet to an engine, and back", "SECONDS",
        of="fleet", flag="transit", shown="0.0001",
    )  # fmt: skip
    max_hold_us: Annotated[int, MICROSECONDS] | None = setting(
        None, "longest time that router fleet holds a request for the engine with its prompt; 0: none",
        "SECONDS", of="fleet", flag="max-hold", shown="16",
    )  # fmt: skip
    worker_quantum: int | None = setting(
        None, "Q^w of d2lpm", "TOKENS", of="router", ge=1, shown="16384"
    )
    worker_charge: str | None = setting(
        None, "prompt tokens that d2lpm charges at an engine; input: all; extend: those to compute",
        of="router", choices=("input", "extend"), shown="input",
    )  # fmt: skip
    worker_overdraft: int | None = setting(
        None, "tokens beyond Q^w for a prompt that the engine has cached, for d2lpm",
        "TOKENS", of="router", ge=0, shown="0",
    )  # fmt: skip
    min_match: int | None = setting(
        None, "shortest cached prefix that counts, for d2lpm", "TOKENS", of="router", ge=1, shown="64"
    )  # fmt: skip
    central_round_trip_us: Annotated[int, MICROSECONDS] | None = setting(
        None, "time for a worker's request to central-dlpm and the answer", "SECONDS",
        of="central", flag="central-round-trip", shown="0.0002",
    )  # fmt: skip
    central_work_us: Annotated[int, MICROSECONDS] | None = setting(
        None, "time that central-dlpm computes for each answer", "SECONDS",
        of="central", flag="central-work", shown="0.0001",
    )  # fmt: skip
    event_delay_us: Annotated[int, MICROSECONDS] = setting(
        0, "delay of the events by which the router learns of a cache's changes", "SECONDS",
        of="cluster", flag="event-delay",
    )  # fmt: skip
    host: str = setting(
        "ideal", "profile of the simulated engine", of="engine", shown="the admission's",
        choices=("ideal", "artifact", "vllm", "sglang"),
    )  # fmt: skip
    admission: str | None = setting(
        None, "memory that an admitted request needs free: for prompt and max_tokens (reserve), the VTC "
        "artifact's worst case, or the prompt (optimistic)",
        of="engine", shown="the host's", choices=("reserve", "artifact", "optimistic"),
    )  # fmt: skip
    inbatch: str | None = setting(
        None, "when a prompt counts as cached: from its admission (share), or once computed; host ideal",
        of="engine", shown="share", choices=("share", "compute"),
    )  # fmt: skip
    misfit: str | None = setting(
        None, "a request that does not fit ends the scheduling pass, or is skipped",
        of="engine", choices=("stop", "skip"),
        shown=f"stop; skip for {', '.join(name for name, what in ALL_ON_UNFIT.items() if what == 'skip')}",
    )  # fmt: skip
    max_misfits: int | None = setting(
        None, "most requests skipped in one scheduling pass", "N", of="engine", ge=1, shown="no limit"
    )  # fmt: skip
    max_running: int = setting(256, "requests in the batch of one engine", "N", of="engine", ge=1)
    batch_tokens: int | None = setting(
        None, "tokens computed in one step: vLLM's budget, SGLang's chunk", "TOKENS",
        of="engine", ge=1, shown="the GPU's",
    )  # fmt: skip
    kv_tokens: int | None = setting(
        None, "KV memory of one engine; needed with linear:", "M",
        of="engine", ge=1, le=MAX_KV_TOKENS, shown="the GPU's memory without the model",
    )  # fmt: skip
    step_time: str = setting(
        "a10g:llama-3.2-3b", "GPU:MODEL, or linear:BASE,PER_EXTEND,PER_RUNNING in seconds", "MODEL",
        of="engine",
    )  # fmt: skip
    constants: Annotated[Constants, TABLES] = setting(
        BUILT_IN, "file with more GPUs and models", "YAML", of="engine", shown="none"
    )
    jitter: float = setting(
        0.0, "spread of the normal factor on the time of each step", "SHARE", of="engine"
    )
    scheduler: str = setting(
        "dlpm", "policy that orders the waiting requests of an engine",
        of="policy", choices=tuple(ALL_SCHEDULERS),
    )  # fmt: skip
    quantum: int | None = setting(
        None, "Q^u of dlpm, drr and fair", "TOKENS", of="scheduler", ge=1, shown="4096; fair 1024"
    )
    weights: Annotated[Mapping[ClientId, object], WEIGHTS] = setting(
        {}, "shares of clients, before those that the trace gives", "a=2,b=1", of="policy", shown="1 each"
    )  # fmt: skip
    charge: str | None = setting(
        None, "prompt tokens that the policy charges; extend: those to compute; input: all",
        of="scheduler", choices=("extend", "input"), shown="the policy's",
    )  # fmt: skip
    cost: Annotated[Cost, COST] | None = setting(
        None, "cost of a request: linear:P,Q, context:OUTPUT,CONTEXT, engine, profiled, flops:MODEL, ...",
        "COST", of="policy", shown="linear:1,2; fair engine",
    )  # fmt: skip
    max_overtake: int | None = setting(
        None, "prompt tokens that may be computed for a client's later requests before its oldest, for dlpm",
        "TOKENS", of="scheduler", ge=0, shown="no limit",
    )  # fmt: skip
    overdraft: int | None = setting(
        None, "debt beyond its last admission up to which a client's cached prompts are admitted, for fair",
        "TOKENS", of="scheduler", ge=0, shown="1024, at most the quantum",
    )  # fmt: skip
    near: int | None = setting(
        None, "steps of matched tokens within which the client with the most credit is first, for fair",
        "TOKENS", of="scheduler", ge=1, shown="256",
    )  # fmt: skip
    eviction: str | None = setting(
        None, "order of eviction under fair: what waiting prompts want last, or least recently used",
        of="scheduler", choices=("wanted-last", "lru"), shown="wanted-last",
    )  # fmt: skip
    prepay: str | None = setting(
        None, "outputs that fair charges at admission: the expected ones, or none",
        of="scheduler", choices=("expected", "none"), shown="expected",
    )  # fmt: skip
    fallback: int | None = setting(
        None, "waiting requests above which lpm orders by arrival", "N", of="scheduler", ge=0, shown="none"
    )  # fmt: skip
    oldest_every: int | None = setting(
        None, "k: k-lpm admits the oldest request at every k-th admission", "N",
        of="scheduler", flag="oldest-every", ge=1, shown="4",
    )  # fmt: skip
    half_life_us: Annotated[int, MICROSECONDS] | None = setting(
        None, "time in which las halves what a client has attained", "SECONDS",
        of="scheduler", flag="half-life", ge=1, shown="60",
    )  # fmt: skip
    rpm_limit: int | None = setting(
        None, "requests of one client in a window, for rpm, over the whole cluster", "N",
        of="policy", ge=1, shown="30",
    )  # fmt: skip
    rpm_window_us: Annotated[int, MICROSECONDS] | None = setting(
        None, "length of rpm's window", "SECONDS", of="policy", flag="rpm-window", shown="60"
    )
    rpm_mode: str | None = setting(
        None, "requests beyond rpm's limit are rejected, or delayed",
        of="policy", choices=("reject", "delay"), shown="reject",
    )  # fmt: skip
    seed: int = setting(
        0, "seed of all that is drawn: jitter, vtc-noisy, power-of-two", "N", of="run"
    )
    skips: bool = True
    changes: tuple[WorkerChange, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        _check_changes(self.replicas, self.changes)

    def of(self, part: str) -> dict[str, Any]:
        """The settings of one part of the simulator, by the name of the flag; None where none is set."""
        return {
            each.flag: getattr(self, name)
            for name, each in settings_of(SimConfig).items()
            if each.of == part
        }

    @property
    def skips_unfitting(self) -> bool:
        """True if a scheduling pass skips requests that do not fit."""
        return (self.misfit or ALL_ON_UNFIT.get(self.scheduler, "stop")) == "skip"

    @property
    def workers(self) -> int:
        """The number of workers that are ever up: the highest worker number plus 1."""
        return max([self.replicas, *(change.worker + 1 for change in self.changes)])


def _check_changes(replicas: int, changes: tuple[WorkerChange, ...]) -> None:
    """Check that a worker that fails is up, and that one that joins is not. Raises ConfigError."""
    up = dict.fromkeys(range(replicas), True)
    numbers = replicas + sum(change.up for change in changes)
    for change in sorted(changes, key=lambda each: each.time_us):
        if change.up and change.worker >= numbers:
            raise ConfigError(f"{change}: expected a worker below {numbers}, as many as ever join")
        if up.get(change.worker, False) == change.up:
            state = "up" if change.up else "not up"
            raise ConfigError(f"{change}: worker {change.worker} is {state} then")
        up[change.worker] = change.up
