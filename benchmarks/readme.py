"""The numbers on pages, from the runs in results/: `python -m benchmarks.readme` writes them there.

A test compares the pages with what this gives, so that every number in them comes from a run.
"""

import csv
import json
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import attack_page, effect_figure, fair_figure, fair_page, peers_page, sglang_page
from benchmarks.committed import RESULTS, ROOT, load, load_builds, provenance, spread

README = ROOT / "README.md"
MEASUREMENTS = ROOT / "docs" / "reference" / "measurements.md"


def effect() -> str:
    """Describe the README's figure."""
    runs = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("two_tenants_*.json"))]
    return (
        f"![{effect_figure.caption()}](docs/figures/{effect_figure.FIGURE.name})\n\n"
        f"Two tenants on two vLLM engines, 4 running requests each; median of {len(runs)} seeds, "
        f"lines from the least to the greatest. {provenance(runs[0])}, `make demo`; "
        "[all numbers](docs/reference/measurements.md)."
    )


def demo() -> str:
    """Tabulate the two-tenant flood: a row for each policy, over all its runs."""
    runs = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("two_tenants_*.json"))]
    table = zip(*(run["rows"] for run in runs), strict=True)
    last = runs[0]["rows"][-1]
    note = f"""\
Median (least to greatest) of {len(runs)} seeds, {last["seconds"]:.0f} s each: heavy keeps 60 requests in
flight, light 16, at two vLLM engines of 4 running requests. Service is extend + 2 * output tokens,
compared while both wait at every engine; `fair` divides engine time, not this service. The gap is at
one engine, where DLPM's bound under full reservation is {last["bound_per_engine"]:,}.
{provenance(runs[0])}."""
    head = "| engines + gateway | light p50, s | light p95, s | heavy p50, s | heavy : light | gap | cached |"
    return "\n".join([head, "|---|---|---|---|---|---|---|", *map(demo_row, table), "", note])


def demo_row(rows: tuple[dict[str, Any], ...]) -> str:
    """Format one policy's row, over the seeds."""
    tenants = [row["tenants"] for row in rows]
    served = {
        name: [each[name]["service_both_backlogged"] for each in tenants]
        for name in ("heavy", "light")
    }
    ratios = [heavy / max(1, light) for heavy, light in zip(*served.values(), strict=True)]

    def seconds(tenant: str, percentile: str) -> str:
        return spread([each[tenant][f"latency_ms_{percentile}"] / 1000 for each in tenants], ".1f")

    cells = [
        f"{rows[0]['scheduler']} + {rows[0]['router']}",
        seconds("light", "p50"),
        seconds("light", "p95"),
        seconds("heavy", "p50"),
        spread(ratios, ".2f") if min(served["light"]) else "light starves",
        spread([max(row["gap_per_engine"].values()) for row in rows], ",.0f"),
        spread([100 * row["hit_rate"] for row in rows], ".0f") + " %",
    ]
    return "| " + " | ".join(cells) + " |"


def bench() -> str:
    """Scheduling decisions and vLLM's schedule(), compiled and in pure Python; the gateway."""
    decision, gateway = load("decision"), load("gateway")
    rows = [
        ("a DLPM decision at 100 / 1,000 / 10,000 / 100,000 waiting", "decision", decision_cost),
        ("matching and sorting the queue instead, at 10,000 waiting", "decision", rematch_cost),
        (
            "vLLM's `schedule()` at 10,000 waiting, DLPM beside stock FCFS",
            "vllm_schedule",
            schedule_cost,
        ),
    ]
    is_old = all(row["target"] != "fairhit, compiled" for row in gateway["rows"])
    outdated = (
        "; the gateway is of a commit before it queued, to be measured anew" if is_old else ""
    )
    note = (
        "Medians on a busy machine: compare within a row, and where the spreads overlap (2 KB) call "
        f"them level. Gateways are in pure Python unless named compiled{outdated}. "
        "The runs with their spread are in [benchmarks/results](../../benchmarks/results), "
        "made by `make bench` and `make compiled`. "
        f"{provenance(decision)}; the gateways: `{gateway['commit']}`, `{gateway['command']}`."
    )
    decided = ["| what | compiled | pure Python |", "|---|---|---|"]
    for what, name, cost in rows:
        cells = ["not measured" if run is None else cost(run) for run in load_builds(name)]
        decided.append(f"| {what} | {' | '.join(cells)} |")
    return "\n".join([*decided, "", *gateways(gateway), "", note])


def decision_cost(run: dict[str, Any]) -> str:
    """Format the CPU time of a DLPM decision by queue length."""
    us = {row["waiting"]: row["us_median"] for row in run["rows"] if row["what"] == "dlpm decision"}
    return " / ".join(f"{us[waiting]:.0f}" for waiting in (100, 1_000, 10_000, 100_000)) + " us"


def rematch_cost(run: dict[str, Any]) -> str:
    """Format the CPU time of matching and sorting the whole queue."""
    key = ("re-match of the queue", 10_000)
    return "{:,.0f} us".format(
        next(row["us_median"] for row in run["rows"] if (row["what"], row["waiting"]) == key)
    )


def schedule_cost(run: dict[str, Any]) -> str:
    """Format the CPU time of vLLM's schedule() under DLPM, as a multiple of stock FCFS."""
    key = ("dlpm", "ample", 10_000)
    row = next(
        row for row in run["rows"] if (row["scheduler"], row["memory"], row["waiting"]) == key
    )
    mean, p99 = row["mean_beside_stock"][1], row["p99_beside_stock"][1]
    return f"mean {mean:.2f}x, p99 {p99:.2f}x"


def gateways(run: dict[str, Any]) -> list[str]:
    """The gateways that were measured side by side, ours first."""
    median_of = {(row["target"], row["what"]): row["median"] for row in run["rows"]}
    targets = list(dict.fromkeys(row["target"] for row in run["rows"]))
    lines = []
    for what in GATEWAY_ROWS:
        cells = [median_of.get((target, what)) for target in targets]
        if any(cell is not None for cell in cells):
            shown = ["-" if cell is None else f"{cell:,.0f}" for cell in cells]
            lines.append(f"| {what} | {' | '.join(shown)} |")
    names = [_GATEWAY_NAMES.get(target, f"{target}, cache-aware") for target in targets]
    return [f"| gateway | {' | '.join(names)} |", "|---" * (len(targets) + 1) + "|", *lines]


# The names of this gateway in the rows; it has fair sharing, keys and metrics on.
_GATEWAY_NAMES = {
    "d2lpm": "fairhit, D2LPM",
    "fairhit": "fairhit, D2LPM",
    "fairhit, queueing": "fairhit, D2LPM, and DLPM queues",
    "fairhit, compiled": "fairhit, D2LPM, compiled",
    "fairhit, queueing, compiled": "fairhit, D2LPM, and DLPM queues, compiled",
}


def sim() -> str:
    """Describe the simulator's error against measured runs, and its speed."""
    run, speed, compiled = load("vtc_calibration"), load("simulator"), load("simulator_compiled")
    errors = run["errors_percent"]
    mean, worst = errors["tokens_per_s_mean"], errors["tokens_per_s_worst"]
    plain, fast = requests_per_s(speed), requests_per_s(compiled)
    return f"""\
Beside {len(run["rows"])} measured runs of the VTC artifact (A10G, A100), replayed by
`fairhit experiment vtc-calibration --data DIR`: throughput is off by {mean:.1f} % in the mean and
{worst:.1f} % at worst, the mean time to first token by {errors["ttft_median"]:.1f} % in the median and
{errors["ttft_worst"]:.1f} % at worst. One core simulates {plain[1]:,.0f} requests a second at 1 replica and
{plain[256]:,.0f} at 256, prefix caches and DLPM on; compiled by mypyc (`make compiled`), to the same bytes,
{fast[1]:,.0f} and {fast[256]:,.0f}. {provenance(run)}; speed: `{speed["commit"]}`, `{compiled["commit"]}`."""


def requests_per_s(run: dict[str, Any]) -> dict[int, float]:
    """Simulated requests a second on one core, by replicas."""
    rows = [row for row in run["rows"] if row["what"] == "requests a second"]
    return {row["replicas"]: row["per_s_median"] for row in rows}


def curve() -> str:
    """Tabulate the CPU time of a simulated request as clients and the queue grow."""
    speed = load("simulator")
    lines = ["| at 1 replica | us a request |", "|---|---|"]
    for row in speed["rows"]:
        if "us_median" in row:
            count = row.get("clients") or row.get("waiting")
            what = "clients seen" if "clients" in row else "requests waiting"
            cost = f"{row['us_median']:.0f} ({row['us_min']:.0f} to {row['us_max']:.0f})"
            lines.append(f"| {count:,} {what} | {cost} |")
    return "\n".join([*lines, "", f"{provenance(speed)}."])


def verdicts(study: str) -> list[dict[str, str]]:
    """The claims of a committed full run; none if there is none."""
    path = RESULTS / "experiments" / study / "verdicts.csv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def claims(study: str) -> str:
    """Tabulate the claims of a study with the results of its full run."""
    rows = verdicts(study)
    if not rows:
        return f"No full run of `fairhit experiment {study}` is committed."
    lines = [f"| {row['claim']} | {row['ours']} | {row['holds']} |" for row in rows]
    return "\n".join([f"| `{study}` | measured | |", "|---|---|---|", *lines])


def soak() -> str:
    """Tabulate the outcomes of the requests in the committed soak, and the gateway's memory."""
    if not (RESULTS / "soak.json").exists():
        return "No soak is committed: `make soak ARGS=--write`."
    run = load("soak")
    (row,) = run["rows"]
    fates = ("offered", "answered", "refused", "failed", "left", "lost", "retried")
    happened = ", ".join(f"{row[what]} {what}" for what in ("killed", "stopped", "reloaded"))
    mb, slope = row["RSS MB"], row["RSS MB/hour in the second half"]
    each = row["bytes per client who asks once"]
    return f"""\
| minutes | {" | ".join(fates)} |
|{"---|" * (1 + len(fates))}
| {row["minutes"]:.0f} | {" | ".join(f"{row[fate]:,}" for fate in fates)} |

What happened meanwhile: {happened}. The gateway's memory: {mb["half-way"]:.1f} MB half-way,
{mb["last"]:.1f} MB at the end, {slope:.1f} MB an hour by the line through the second half. Each of
{run["clients"]:,} clients who asked once left {each} bytes. {provenance(run)}."""


# What the README shows of the verdicts: a study, and how its claims begin.
HEADLINES = (
    ("dlpm-fig7", "D2LPM has up to 2.87x the throughput of VTC"),
    ("dlpm-fig7", "D2LPM has up to 2.22x the throughput of RR+LPM"),
    ("dlpm-fig7", "good clients' latency under Preble is up to"),
    ("dlpm-fig7", "good clients' latency under RR+LPM is up to"),
    ("dlpm-fig7", "good clients' latency under VTC is up to"),
    ("dlpm-fig7", "VTC is at least as fair as D2LPM"),
    ("dlpm-fig7", "D2LPM is fairer than Preble"),
    ("dlpm-fig7", "Preble is fairer than RR+LPM"),
    ("dlpm-fig9", "D2LPM is up to twice as fast"),
    ("dlpm-fig10", "10a: Jain's index (client view) falls by 3 %"),
    ("dlpm-fig11", "DLPM's service rate is about LPM's"),
    ("vtc-table2", "vtc:"),
    ("pareto", "DLPM with a quantum of 4096 has no less throughput than VTC"),
    ("pareto", "DLPM with a quantum of 4096 has no lower Jain index than LPM"),
    ("pareto", "DLPM with a quantum of 4096 has no longer p99 waits"),
)


def headline(study: str, claim: str) -> str:
    """Format the row of the claim that begins with `claim`."""
    (row,) = [row for row in verdicts(study) if row["claim"].startswith(claim)]
    where = f"[{study}](../../benchmarks/results/experiments/{study}/verdicts.csv)"
    return f"| {where} | {row['claim']} | {row['paper']} | {row['ours']} | {row['holds']} |"


def papers() -> str:
    """The headlines of the papers' figures and of ours, and how the papers' claims fared."""
    shown = [headline(study, claim) for study, claim in HEADLINES]
    studies = sorted(path.parent.name for path in RESULTS.glob("experiments/*/verdicts.csv"))
    of_papers = [study for study in studies if study.startswith(("dlpm-", "vtc-"))]
    judged = [row for study in of_papers for row in verdicts(study) if row["whose"] == "paper"]
    count = Counter(row["holds"] for row in judged)
    about = json.loads((RESULTS / "experiments" / "pareto" / "about.json").read_text())
    note = (
        f"Medians (range) of {len(about['seeds'])} seeds on simulated A10Gs. {provenance(about)}. "
        f"Of {len(judged)} claims of the papers {count['holds']} hold, "
        f"{count['holds in the median only']} hold in the median and not for every seed, "
        f"{count['holds under conditions only']} under conditions only, {count['does not hold']} do not, and "
        f"{count['not comparable']} cannot be compared; settings and reasons: "
        "[results](../../benchmarks/results/experiments)."
    )
    return "\n".join(
        ["| from | claim | paper | ours | |", "|---|---|---|---|---|", *shown, "", note]
    )


# What the README shows of it; sizes are those of the bodies.
GATEWAY_ROWS = (
    "CPU us per request, 2 KB",
    "CPU us per request, 80 KB",
    "CPU us per streamed event",
    "p99 us delay of an event",
    "p50 us added at 300/s, 2 KB",
    "RSS MB",
)


def engine_time() -> str:
    """Return the figure of engine time, for a page beside the folder of figures."""
    return f"![{fair_figure.caption()}](../figures/{fair_figure.FIGURE.name})"


# Pages, and their blocks.
PAGES: dict[Path, dict[str, Callable[[], str]]] = {
    README: {"effect": effect},
    MEASUREMENTS: {
        "demo": demo,
        "one-flag": sglang_page.one_flag,
        "papers": papers,
        "fair-cost": partial(claims, "fair-cost"),
        "attack": attack_page.measured,
        "sim": sim,
        "bench": bench,
    },
    ROOT / "docs" / "reference" / "simulate.md": {"curve": curve},
    ROOT / "docs" / "reference" / "faults.md": {"soak": soak},
    ROOT / "docs" / "reference" / "compatibility.md": {
        "vllm-tests": peers_page.vllm,
        "vllm-accepted": peers_page.accepted,
    },
    ROOT / "docs" / "reference" / "sglang.md": {
        "flood": sglang_page.flood,
        "ageing": sglang_page.ageing,
        "cost": sglang_page.cost,
    },
    ROOT / "docs" / "reference" / "fair-targets.md": {
        "targets": fair_page.targets,
        "beside-dlpm": fair_page.beside_dlpm,
        "fleet-targets": fair_page.fleet_targets,
    },
    ROOT / "docs" / "explanation" / "fair.md": {
        "engine-time": engine_time,
        "attack": attack_page.beside_simulation,
    },
    ROOT / "docs" / "howto" / "what-is-charged.md": {"engine-time": engine_time},
    ROOT / "docs" / "explanation" / "defaults.md": {
        study: partial(claims, study)
        for study in (
            "sensitivity-quantum",
            "sensitivity-worker-quantum",
            "sensitivity-min-match",
            "variants",
        )
    },
}


def filled(page: Path) -> str:
    """The page with its blocks as the results say."""
    text = page.read_text()
    for name, made in PAGES[page].items():
        block = made()
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        text, count = re.subn(
            pattern, lambda m, b=block: f"{m[1]}{b}\n{m[2]}", text, flags=re.DOTALL
        )
        assert count == 1, name
    return text


if __name__ == "__main__":
    for each in PAGES:
        each.write_text(filled(each))
