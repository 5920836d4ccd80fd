"""The README's figure, of the committed two-tenant floods: `python -m benchmarks.effect_figure` draws it."""

import hashlib
import json
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.committed import RESULTS, ROOT
from fairhit_lab.report.figures.palette import POLICIES
from fairhit_lab.report.figures.plot import STYLE

FIGURE = ROOT / "docs" / "figures" / "two-tenants.svg"
NAMES = {
    "fcfs": "arrival order\n(fcfs)",
    "vtc": "equal tokens\n(vtc)",
    "lpm": "cache hits first\n(lpm)",
    "dlpm": "fairhit, tokens\n(dlpm + d2lpm)",
    "fair": "fairhit, engine time\n(fair + d2lpm)",
}
TENANTS = {
    "light": "light tenant, 16 requests in flight",
    "heavy": "heavy tenant, 60 requests in flight",
}


def runs() -> list[Path]:
    """The committed floods, one a seed."""
    return sorted(RESULTS.glob("two_tenants_*.json"))


def made_of() -> str:
    """The digest of the runs, which the figure carries in its metadata."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in runs())).hexdigest()


def rows_of(policy: str) -> list[dict[str, Any]]:
    """The row of a policy in each run."""
    found = [json.loads(path.read_text())["rows"] for path in runs()]
    return [row for rows in found for row in rows if row["scheduler"] == policy]


def caption() -> str:
    """Return what the figure shows, for readers who do not see it."""
    waits, shares = [], []
    for policy in NAMES:
        rows = rows_of(policy)
        seconds = median(row["tenants"]["light"]["latency_ms_p95"] / 1000 for row in rows)
        waits.append(f"{seconds:.1f} s under {policy}")
        shares.append(f"{100 * median(row['hit_rate'] for row in rows):.0f}")
    return (
        "Time within which 95 % of the answers are complete: the light tenant waits "
        f"{', '.join(waits)}; {', '.join(shares)} % of the prompt tokens are cached"
    )


def draw(path: Path) -> None:
    """Wait at the 95th percentile for both tenants, and the share of cached prompt tokens."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {**STYLE, "svg.hashsalt": "two-tenants", "font.size": 11}
    with rc_context(style):
        figure = Figure(figsize=(8, 4.7), layout="constrained")
        waits, cached = figure.subplots(1, 2, sharey=True, width_ratios=[3, 1])
        for number, policy in enumerate(reversed(NAMES)):
            rows, colour = rows_of(policy), POLICIES[policy]
            for above, tenant in ((0.19, "light"), (-0.19, "heavy")):
                seconds = [row["tenants"][tenant]["latency_ms_p95"] / 1000 for row in rows]
                value, heavy = median(seconds), tenant == "heavy"
                waits.barh(number + above, value, 0.34, color=colour, alpha=0.35 if heavy else 1)
                waits.plot([min(seconds), max(seconds)], [number + above] * 2, color="#222", lw=1)
                label = f" {value:.1f} s" + (f"  {TENANTS[tenant]}" if policy == "fcfs" else "")
                waits.text(max(*seconds, value), number + above, label, va="center", fontsize=9.5)
            share = 100 * median(row["hit_rate"] for row in rows)
            cached.barh(number, share, 0.6, color=colour)
            cached.text(
                share / 2, number, f"{share:.0f} %", va="center", ha="center", color="white"
            )
        waits.set_yticks(range(len(NAMES)), list(reversed(NAMES.values())))
        waits.set_title("95 % of a tenant's answers are complete within", fontsize=10.5)
        cached.set_title("cached tokens", fontsize=10.5)
        waits.set_xlim(0, 22)
        cached.set_xlim(0, 100)
        for axes in (waits, cached):
            axes.grid(visible=False)
            axes.xaxis.set_visible(False)
            axes.spines[["bottom", "left"]].set_visible(False)
            axes.tick_params(left=False)
        figure.savefig(path, metadata={"Date": None, "Source": made_of()})


if __name__ == "__main__":
    draw(FIGURE)
    print(f"written: {FIGURE.relative_to(ROOT)}")
