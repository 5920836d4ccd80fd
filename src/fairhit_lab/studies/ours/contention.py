"""Workloads of every kind with clients above their fair share, for one engine or several.

Capacities were measured by saturating one engine (DLPM, all clients far above their share). Light
clients ask for 60 to 90 % of an equal share, heavy ones for two to five times theirs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fairhit_lab.studies.dlpm.shared import ON_A10G, ON_A10G_8B
from fairhit_lab.studies.shared.measures import wait
from fairhit_lab.studies.shared.results import Label
from fairhit_lab.studies.shared.study import Generated, Imported, Outcome, Simulated

MOONCAKE = ("mooncake/conversation.jsonl.gz",)
AGENTIC = ("agentic_sessions/sessions.jsonl.gz",)
SERVEGEN = ("servegen_clients/arrivals.csv.gz", "servegen_clients/lengths.csv.gz")
AZURE = ("azure_llm_2023/conv.csv.gz", "azure_llm_2023/code.csv.gz")

# Skipped in one pass at most: engines bound a pass when the queue is long and memory is full, too.
MAX_SKIPPED = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class ContentionLoad:
    """A workload for one engine, and how it grows with the number of engines.

    `rates` are programs per second and engine, `counts` numbers that grow with the engines.
    `heavy`: the clients that ask for more than their share. Arrivals end at `duration_s`.
    """

    source: Generated | Imported
    heavy: tuple[str, ...]
    engine: Mapping[str, Any] = field(default_factory=lambda: ON_A10G_8B)
    rates: tuple[float, ...] | float | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    duration_s: int = 240
    # Recorded times cannot be scaled: the part of a trace that is heavy enough for several engines.
    fleet: Mapping[str, Any] = field(default_factory=dict)
    fleet_s: int | None = None

    def settings(self, engines: int, duration_s: int) -> dict[str, Any]:
        """The settings of the generator or the importer."""
        found = {**self.source.settings, **(self.fleet if engines > 1 else {})}
        if isinstance(self.rates, tuple):
            found["rates"] = tuple(rate * engines for rate in self.rates)
        elif self.rates is not None:
            found["rate"] = self.rates * engines
        if "duration" in found or isinstance(self.source, Generated):
            found["duration"] = duration_s
        return found | {name: count * engines for name, count in self.counts.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Contended(Simulated):
    """A simulated run whose summary names the clients that ask for more than their share (`heavy`)."""

    heavy: tuple[str, ...] = ()

    def outcome(self, seed: int, data: Any) -> Outcome:
        """Simulate, and add `heavy` to the summary."""
        # Not super(): the decorator creates a class with slots anew.
        outcome = Simulated.outcome(self, seed, data)
        return replace(outcome, summary={**outcome.summary, "heavy": list(self.heavy)})


def _trees(workload: str, *rates: float, **settings: Any) -> ContentionLoad:
    return ContentionLoad(
        source=Generated(workload=workload, settings={"clients": 4, **settings}),
        heavy=("c0",),
        rates=rates,
    )


def _imported(name: str, files: tuple[str, ...], **settings: Any) -> Imported:
    return Imported(format=name, files=files, settings=settings)


LOADS: Mapping[str, ContentionLoad] = {
    "tot-s1": _trees("tot-s1", 0.025),
    "tot-s2": _trees("tot-s2", 0.1, 0.027, branches=(2,)),
    "judge-s1": _trees("judge-s1", 0.12, 0.08),
    "judge-s2": _trees("judge-s2", 0.2, 0.04),
    "long-qa-s1": replace(_trees("long-qa-s1", 0.2, 0.04), engine=ON_A10G),
    "long-qa-s2": replace(_trees("long-qa-s2", 0.1, 0.04), engine=ON_A10G),
    "arena": _trees("arena", 4.0, 0.7),
    "chat": replace(_trees("chat", 2.0, 0.25, clients=6), duration_s=180),
    "mixed": ContentionLoad(
        source=Generated(workload="mixed"), heavy=("c2",), rates=(0.35, 0.08, 0.1, 0.05)
    ),
    "mooncake": ContentionLoad(
        source=_imported("mooncake", MOONCAKE, spread=3, scale=4, keep=(1.0, 0.3)),
        heavy=("c0",),
        fleet={"scale": 1},
    ),
    "agentic": ContentionLoad(
        source=_imported("agentic", AGENTIC, scale=16),
        heavy=(),
        rates=4.0,
        counts={"sessions": 40, "per_client": 8},
    ),
    "servegen": ContentionLoad(
        source=_imported(
            "servegen",
            SERVEGEN,
            model="deepseek-r1",
            start=3600.0,
            clients=6,
            scale=4,
            duration=240,
        ),
        heavy=("c35", "c48"),
        rates=3.0,
    ),
    "azure": ContentionLoad(source=_imported("azure", AZURE), heavy=("conv",), fleet_s=480),
}


SKIPPING = ("dlpm", "dlpm-predict", "drr", "preble-groups")


def contended(
    name: str,
    labels: Mapping[str, Label],
    settings: Mapping[str, Any],
    *,
    engines: int = 1,
    duration_s: int | None = None,
) -> Contended:
    """A case on that workload; `settings` are the simulator's, its engine is the workload's."""
    load = LOADS[name]
    until_s = duration_s or load.duration_s
    if engines > 1 and load.fleet_s:
        until_s = load.fleet_s
    source = replace(load.source, settings=load.settings(engines, until_s))
    bounded = {"max_misfits": MAX_SKIPPED} if _skips(settings) else {}
    return Contended(
        labels={"workload": name, **labels},
        source=source,
        settings={**load.engine, "replicas": engines, **bounded, **settings},
        until_s=until_s,
        stop_s=until_s,
        heavy=load.heavy,
    )


def _skips(settings: Mapping[str, Any]) -> bool:
    if "misfit" in settings:
        return bool(settings["misfit"] == "skip")
    return settings.get("scheduler", "dlpm") in SKIPPING


def light_p99_s(outcome: Outcome) -> float | None:
    """P99 of the wait for the first token: the mean over clients that are not heavy."""
    return wait("p99_s", without=tuple(outcome.summary["heavy"]))(outcome)


def light_share(outcome: Outcome) -> float | None:
    """The least share of entitlement of a client that is not heavy."""
    heavy = set(outcome.summary["heavy"])
    shares = [
        row["entitlement_share"]
        for client, row in outcome.summary["clients"].items()
        if client not in heavy and row["entitlement_share"] is not None
    ]
    return min(shares, default=None)


def heavy_p99_s(outcome: Outcome) -> float | None:
    """P99 of the wait for the first token: the mean over heavy clients; None where there are none."""
    heavy = set(outcome.summary["heavy"])
    return wait("p99_s", without=tuple(outcome.summary["waits"].keys() - heavy))(outcome)


def worst_gap(outcome: Outcome) -> float | None:
    """The largest gap between two clients that both wait, in tokens of the charged service."""
    worst = outcome.summary["gaps"]["worst"]
    return float(worst["gap"]) if worst else None


def gap_over_bound(outcome: Outcome) -> float | None:
    """The largest gap as a share of its theorem's bound; None where no theorem applies."""
    worst = outcome.summary["gaps"]["worst"]
    return worst["gap"] / worst["bound"] if worst and worst["bound"] else None
