"""The curves of results/sglang_schedule.json, drawn for the page by `python -m benchmarks.sglang_figure`."""

import hashlib
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.committed import RESULTS, ROOT, load
from fairhit_lab.report.figures.palette import POLICIES
from fairhit_lab.report.figures.plot import STYLE

FIGURE = ROOT / "docs" / "reference" / "figures" / "sglang_schedule.png"
# Lane: its name in the legend, colour, line, marker.
LANES = {
    "lpm, tree in Python": ("lpm, tree in Python", "#7fcbb0", "-", "s"),
    "lpm, tree in Rust": ("lpm, tree in Rust", POLICIES["lpm"], "-", "o"),
    "dlpm, tree in Python": ("dlpm, tree in Python", "#f0b48a", "-", "s"),
    "dlpm, tree in Rust": ("dlpm, tree in Rust", POLICIES["dlpm"], "-", "D"),
    "lpm, capped": ("lpm as it stands: above 128 it sorts nothing", "#444444", ":", "."),
}


def made_of() -> str:
    """Return the digest of the run that the figure shows, for the figure's metadata."""
    run = (RESULTS / "sglang_schedule.json").read_bytes()
    return hashlib.sha256(run).hexdigest()


def draw(path: Path) -> None:
    """A column for each length of prompt, a row for each state of the cache; both scales are logs."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    run = load("sglang_schedule")
    rows = run["rows"]
    prompts = list(dict.fromkeys(row["prompt"] for row in rows))
    caches = list(dict.fromkeys(row["cache"] for row in rows))
    with rc_context(STYLE):
        figure = Figure(figsize=(9.5, 5.6), layout="constrained")
        grid = figure.subplots(len(caches), len(prompts), sharex=True, sharey=True, squeeze=False)
        for axes_row, cache in zip(grid, caches, strict=True):
            for axes, prompt in zip(axes_row, prompts, strict=True):
                panel(
                    axes, [row for row in rows if (row["prompt"], row["cache"]) == (prompt, cache)]
                )
                axes.set_title(f"{prompt:,} tokens, {cache}")
            axes_row[0].set_ylabel("CPU of a scheduling pass, ms")
        for axes in grid[-1]:
            axes.set_xlabel("requests waiting")
        handles, names = grid[0][0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper center", ncols=len(names))
        figure.savefig(path, dpi=120, metadata={"Source": made_of()})


def panel(axes: Any, rows: list[dict[str, Any]]) -> None:
    """The lanes of one prompt and cache: medians over the seeds, with the range they lie in."""
    for lane, (name, colour, line, marker) in LANES.items():
        of = [row for row in rows if row["lane"] == lane]
        xs = [row["waiting"] for row in of]
        ys = [[us / 1000 for us in row["look_us"]] for row in of]
        middle = [median(y) for y in ys]
        axes.fill_between(
            xs, [y[0] for y in ys], [y[-1] for y in ys], color=colour, alpha=0.15, lw=0
        )
        axes.plot(xs, middle, line, marker=marker, markersize=4, color=colour, label=name)
    axes.set(xscale="log", yscale="log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,g}")


if __name__ == "__main__":
    draw(FIGURE)
    print(f"written: {FIGURE.relative_to(ROOT)}")
