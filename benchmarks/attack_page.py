"""The tables of the attack on real engines, from the records of its benchmarks."""

from collections import Counter
from statistics import median
from typing import Any

from benchmarks import fair_figure
from benchmarks.committed import load, provenance, spread
from fairhit_lab.studies.ours.fair_cost import PREFIXES

CLONE = "clone"
POLICIES = ("dlpm", "fair")
SHARE = "chat_share_of_seconds"
HEAD = (
    "| policy | cached prefix, tokens | its tenant's engine time, % | by counts, % | its charge, % "
    "| chat is slower than beside a clone by |\n|---|---|---|---|---|---|"
)


def measured() -> str:
    """Tabulate each engine, policy and prefix: what the tenant with the prefix took, and what chat lost."""
    run = load("attack_vllm")
    note = (
        f"A real vLLM on CPU, a model of two layers, {run['slots']} running requests, "
        f"{run['outputs']} outputs a request: 200 new prompt tokens against the prefix and one new token. "
        f"Both tenants always wait. Median (least to greatest) of {rounds(run)}. Engine time is that of "
        "the passes, in CPU seconds of the engine, divided by the fit of pass times; *by counts* divides "
        "the same passes by another fit, to each tenant's prompt tokens and outputs. "
        f"{provenance(run)}, `{run['command']}`."
    )
    return "\n".join([HEAD, *rows_of(run), "", note])


def rows_of(run: dict[str, Any]) -> list[str]:
    """Format a run's rows, beside those of the clone."""
    lines = []
    attacked = [row for row in run["rows"] if row["rival"] != CLONE]
    for policy, prefix in sorted({(row["policy"], row["prefix"]) for row in attacked}):
        rows = [row for row in attacked if (row["policy"], row["prefix"]) == (policy, prefix)]
        shares = (
            rival(rows, f"chat_share_{what}") for what in ("of_seconds", "by_counts", "of_charge")
        )
        cells = (f"`{policy}`", f"{prefix:,}", *shares, slowdown(run, policy, rows))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def rival(rows: list[dict[str, Any]], share: str) -> str:
    """Format the other tenant's share in percent."""
    return spread([100 * (1 - row[share]) for row in rows], ".0f")


def slowdown(run: dict[str, Any], policy: str, rows: list[dict[str, Any]]) -> str:
    """Format how many times fewer outputs a second the chat tenant has than beside its clone (median)."""
    clones = [row for row in run["rows"] if (row["policy"], row["rival"]) == (policy, CLONE)]
    beside = median((row["chat_outputs_per_s"] + row["rival_outputs_per_s"]) / 2 for row in clones)
    return spread([beside / row["chat_outputs_per_s"] for row in rows], ".1f") + "x"


def rounds(run: dict[str, Any]) -> str:
    """Return how many runs there are of each case, in words."""
    count = Counter((row["policy"], row["rival"], row["prefix"]) for row in run["rows"]).values()
    least, most = min(count), max(count)
    return f"{least} runs" if least == most else f"{least} to {most} runs"


def beside_simulation() -> str:
    """Tabulate the share of the tenant with the prefix, simulated and on a real vLLM."""
    rows = [row for row in load("attack_vllm")["rows"] if row["rival"] != CLONE]
    prefixes = [prefix for prefix in PREFIXES if prefix in {int(row["prefix"]) for row in rows}]
    lines = [
        f"| its engine time, % | {' | '.join(f'{prefix:,}' for prefix in prefixes)} |",
        "|---|" + "---|" * len(prefixes),
    ]
    for policy in POLICIES:
        shares = dict(zip(PREFIXES, fair_figure.shares(policy), strict=True))
        simulated = " | ".join(f"{shares[prefix]:.0f}" for prefix in prefixes)
        real = " | ".join(
            rival([r for r in rows if (r["policy"], r["prefix"]) == (policy, prefix)], SHARE)
            for prefix in prefixes
        )
        lines += [f"| `{policy}`, simulated | {simulated} |", f"| `{policy}`, real vLLM | {real} |"]
    return "\n".join(lines)
