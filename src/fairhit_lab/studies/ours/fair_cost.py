"""Cost of a cached prefix: engine time of two tenants that always wait, under each charge."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairhit.core.service import TokenCost
from fairhit_lab.metrics.engine_seconds import EngineSeconds
from fairhit_lab.sim.config import SimConfig
from fairhit_lab.sim.hardware.step_time import Roofline, parse_step_time
from fairhit_lab.studies.ours.comparing import BEYOND
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Label, Results
from fairhit_lab.studies.shared.study import Case, Generated, Outcome, Simulated, Study, Verdict

PREFIXES = (0, 4_000, 30_000, 60_000, 100_000)
CLONE = -1  # the label of the run beside a clone
# 32 slots and 129,000 tokens of KV, so that the longest prefix leaves room.
ENGINE: Mapping[str, Any] = {"step_time": "a10g:llama-3.2-3b", "max_running": 32}
POLICIES: Mapping[str, Mapping[str, Any]] = {
    "dlpm": {"scheduler": "dlpm"},
    "vtc": {"scheduler": "vtc"},
    "fair": {"scheduler": "fair"},
    "fair (papers' cost)": {"scheduler": "fair", "cost": TokenCost()},
    "fair (nothing prepaid)": {"scheduler": "fair", "prepay": "none"},
    "fair (no overdraft)": {"scheduler": "fair", "overdraft": 0},
}
STOP_S, QUICK_S = 400, 60
LEAST, MOST, SLOWEST = 0.45, 0.55, 1.3


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineTimed(Simulated):
    """A simulated run on one ideal engine whose summary has `engine_seconds` by client."""

    def outcome(self, seed: int, data: Path | None) -> Outcome:
        """Simulate with an observer of engine time."""
        config = SimConfig(**{"seed": seed, **self.settings})
        model = parse_step_time(config.step_time, engine=config.host)
        assert isinstance(model, Roofline), config.step_time
        spent = EngineSeconds(context_ps=model.context_ps, attention_ps=model.attention_ps)
        outcome = Simulated.simulated(self, seed, data, spent)
        return replace(outcome, summary={**outcome.summary, "engine_seconds": spent.seconds()})


def cases(quick: bool) -> Sequence[Case]:
    """Cases of each policy beside a clone, and beside a tenant with each cached prefix."""
    found: list[Case] = []
    for policy, settings in POLICIES.items():
        for prefix in (CLONE, *PREFIXES):
            shape = {"prefix": 0, "own": 200} if prefix == CLONE else {"prefix": prefix}
            found.append(
                EngineTimed(
                    labels={"policy": policy, "prefix": prefix},
                    source=Generated(workload="cached-prefix", settings=shape),
                    settings={**ENGINE, **settings},
                    stop_s=QUICK_S if quick else STOP_S,
                )
            )
    return found


def long_share(outcome: Outcome) -> float | None:
    """The share of engine time of the tenant with the prefix."""
    seconds = outcome.summary["engine_seconds"]
    total = sum(seconds.values())
    return seconds.get("long", 0.0) / total if total else None


def charged_share(outcome: Outcome) -> float | None:
    """The share of DLPM's service, extend + 2 * output, of the tenant with the prefix."""
    service = {name: row["service"]["system"] for name, row in outcome.summary["clients"].items()}
    total = sum(service.values())
    return service.get("long", 0.0) / total if total else None


def chat_tokens(outcome: Outcome) -> float | None:
    """Output tokens of the tenant that chats."""
    return float(outcome.summary["clients"]["chat"]["tokens"]["output"])


def _judge(results: Results) -> Sequence[Verdict]:
    return [
        verdict
        for policy in results.labels("policy")
        for verdict in (_shares(results, str(policy)), _slowdown(results, str(policy)))
    ]


def _shares(results: Results, policy: str) -> Verdict:
    """The verdict on the engine time of two tenants that both always wait."""
    shares = {
        prefix: results.interval("long_share", policy=policy, prefix=prefix).median
        for prefix in PREFIXES
    }
    bad = [prefix for prefix, share in shares.items() if not LEAST <= share <= MOST]
    return Verdict(
        claim=f"{policy}: two tenants that always wait have 45 to 55 % of engine time each, "
        "whatever the cached prefix",
        paper=BEYOND,
        ours="; ".join(f"{share:.2f} at {prefix:,}" for prefix, share in shares.items()),
        holds="does not hold" if bad else "holds",
        why=f"not at {', '.join(f'{prefix:,}' for prefix in bad)}" if bad else "",
        least=0,
        greatest=1,
    )


def _slowdown(results: Results, policy: str) -> Verdict:
    """The verdict on the chat tenant's outputs beside its clone over those beside the prefix."""
    clone: Mapping[str, Label] = {"policy": policy, "prefix": CLONE}
    slow = {
        prefix: results.ratio("chat_tokens", clone, {"policy": policy, "prefix": prefix}).median
        for prefix in PREFIXES
    }
    # Without a value it got nothing at all.
    bad = [prefix for prefix, times in slow.items() if not times <= SLOWEST]
    return Verdict(
        claim=f"{policy}: a tenant that chats is at most {SLOWEST} times slower than beside a clone",
        paper=BEYOND,
        ours="; ".join(f"{times:.2f}x at {prefix:,}" for prefix, times in slow.items()),
        holds="does not hold" if bad else "holds",
        why=f"not at {', '.join(f'{prefix:,}' for prefix in bad)}" if bad else "",
        least=0,  # a tenant that starves beside the prefix has no ratio: no upper end
    )


STUDY = Study(
    whose="ours",
    title="What a cached prefix costs",
    source="beyond the papers: one engine",
    shows="engine time of a tenant with a long cached prefix beside one that chats, by policy",
    takes="quick 10 s; full 12 s",
    cases=cases,
    measures={"long_share": long_share, "charged_share": charged_share, "chat_tokens": chat_tokens},
    panels=[
        Panel(
            title="Share of engine time of the tenant with the prefix",
            form="bars",
            x="prefix",
            y="long_share",
            hue="policy",
            x_label="cached prefix, tokens (-1: a clone of the other tenant)",
            y_label="share of engine time",
        ),
        Panel(
            title="Share of DLPM's charge of the same tenant",
            form="bars",
            x="prefix",
            y="charged_share",
            hue="policy",
            x_label="cached prefix, tokens (-1: a clone of the other tenant)",
            y_label="share of extend + 2 output",
        ),
    ],
    judge=_judge,
    choices=(
        "One A10G with Llama-3.2-3B, 32 slots, ideal host, 400 s. Both tenants have 3,000 requests "
        "waiting from the start, 200 outputs each; one sends 200 fresh tokens, the other a cached "
        "prefix and one fresh token. Engine time is divided by the step-time model itself: the "
        "context and the attention of each request are its own, the rest of a pass is shared by the"
        " tokens computed in it. Nothing is drawn: the seeds agree."
    ),
)
