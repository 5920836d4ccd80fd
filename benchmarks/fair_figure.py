"""The figure of what `fair` charges, of the committed study fair-cost: `python -m benchmarks.fair_figure`.

It is written as text, so that a test compares the file on the page with what this gives.
"""

import csv
from statistics import median

from benchmarks.committed import RESULTS, ROOT
from fairhit_lab.report.figures.palette import POLICIES
from fairhit_lab.studies.ours.fair_cost import PREFIXES

FIGURE = ROOT / "docs" / "figures" / "fair-engine-time.svg"
RECORD = RESULTS / "experiments" / "fair-cost" / "rows.csv"
# Policy: its charge, in words, and the left edge of its legend.
CHARGES = {"dlpm": ("dlpm: extend + 2 output", 250), "fair": ("fair: engine time", 450)}
TITLE = "Share of engine time of the tenant with the prefix; the other tenant chats"
INK, LINE, GRID = "#222222", "#555555", "#dddddd"
# Pixels: the axes' left and right ends, the heights of 0 and of 100 %, a bar, one prefix to the next.
LEFT, RIGHT, BASE, TOP, BAR, STEP = 70, 780, 262, 62, 46, 142


def shares(policy: str) -> list[float]:
    """Return the share of engine time in percent at each prefix, the median of the seeds."""
    with RECORD.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["policy"] == policy]
    return [
        100 * median(float(row["long_share"]) for row in rows if row["prefix"] == str(prefix))
        for prefix in PREFIXES
    ]


def words(policy: str) -> str:
    """Return the shares of a policy as a list in prose, in whole percent."""
    *first, last = [f"{share:.0f}" for share in shares(policy)]
    return f"{', '.join(first)} and {last} %"


def prefixes() -> str:
    """Return the prefixes as a list in prose, in tokens."""
    *first, last = [f"{prefix:,}" for prefix in PREFIXES]
    return f"{', '.join(first)} and {last} tokens"


def caption() -> str:
    """Return what the figure shows, for readers who do not see it."""
    return (
        f"Engine time of a tenant with a cached prefix of {prefixes()} beside a tenant that chats: "
        f"{words('dlpm')} under the papers' charge, {words('fair')} under fair"
    )


def drawn() -> str:
    """Return the figure as SVG: two bars for each prefix."""
    lines = [
        (
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 330" width="800" height="330"'
            ' role="img" aria-labelledby="t d" font-family="system-ui, sans-serif" font-size="13">'
        ),
        '<title id="t">Engine time of a tenant with a cached prefix</title>',
        f'<desc id="d">{caption()}</desc>',
        '<rect width="800" height="330" fill="#ffffff"/>',
        f'<text x="12" y="26" font-weight="600" fill="{INK}">{TITLE}</text>',
        *(line for percent in range(0, 101, 25) for line in gridline(percent)),
    ]
    for place, prefix in enumerate(PREFIXES):
        middle = 146 + STEP * place
        for policy, left in zip(CHARGES, (middle - BAR - 2, middle + 2), strict=True):
            lines += bar(left, shares(policy)[place], POLICIES[policy])
        lines.append(text(middle, BASE + 18, f"{prefix:,}", "middle"))
    lines.append(text((LEFT + RIGHT) / 2, 299, "cached prefix, tokens", "middle"))
    for policy, (charge, left) in CHARGES.items():
        lines.append(f'<rect x="{left}" y="310" width="12" height="12" fill="{POLICIES[policy]}"/>')
        lines.append(text(left + 18, 320.5, charge, "start"))
    return "\n".join([*lines, "</svg>", ""])


def gridline(percent: int) -> list[str]:
    """Return the line of one share and its label; half of the engine is dashed."""
    y = height(percent)
    colour = LINE if percent in {0, 50} else GRID
    dashes = ' stroke-dasharray="4 3"' if percent == 50 else ""
    line = f'<line x1="{LEFT}" y1="{y:g}" x2="{RIGHT}" y2="{y:g}" stroke="{colour}"{dashes}/>'
    return [line, text(LEFT - 8, y + 4.5, f"{percent} %", "end")]


def bar(left: int, share: float, colour: str) -> list[str]:
    """Return one bar with its share in whole percent."""
    top = height(share)
    size = f'width="{BAR}" height="{BASE - top:.1f}"'
    return [
        f'<rect x="{left}" y="{top:.1f}" {size} fill="{colour}"/>',
        text(left + BAR / 2, round(top + 17, 1), f"{share:.0f}", "middle", "#ffffff"),
    ]


def height(percent: float) -> float:
    """Return the height of a share on the axis, in pixels from above."""
    return BASE - (BASE - TOP) * percent / 100


def text(x: float, y: float, content: str, anchor: str, colour: str = INK) -> str:
    """Return a text element."""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{colour}">{content}</text>'


if __name__ == "__main__":
    FIGURE.write_text(drawn(), encoding="utf-8")
    print(f"written: {FIGURE.relative_to(ROOT)}")
