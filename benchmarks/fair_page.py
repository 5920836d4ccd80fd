"""Targets of `fair`, and of the queue before many engines: a line each, from the committed studies."""

import csv
from statistics import median

from benchmarks.committed import RESULTS, load

STUDIES = RESULTS / "experiments"
MOST_TIMES = 1.3
HEAD = "| host | target | measured | |\n|---|---|---|---|"


def targets() -> str:
    """Tabulate the claims of the study `fair`, those of `fair-cost` about it, and its decisions."""
    rows = [*_claims("fair"), *(row for row in _claims("fair-cost") if row["host"] == "fair")]
    lines = [
        f"| {'ideal' if row['host'] == 'fair' else row['host']} | {row['target']} | {row['ours']} | "
        f"{row['holds']}{': ' + row['why'] if row['why'] else ''} |"
        for row in rows
    ]
    return "\n".join([HEAD, *lines, _decisions()])


def fleet_targets() -> str:
    """Tabulate the claims of the study `fleet`: before stock engines, and before those with the plug-in."""
    lines = ["| before | target | measured | |", "|---|---|---|---|"]
    lines += [
        f"| {row['host']} | {row['target']} | {row['ours']} | {row['holds']} |"
        for row in _claims("fleet")
    ]
    return "\n".join(lines)


def beside_dlpm() -> str:
    """Tabulate what changes for those who run dlpm: by host, the median workload and the extremes."""
    rows = [row for row in _read("fair", "rows") if row["group"] == "policies"]
    lines = ["| host | throughput | light clients' p99 wait | worst light client's share |"]
    lines.append("|---|---|---|---|")
    for host in dict.fromkeys(row["host"] for row in rows):
        here = [row for row in rows if row["host"] == host]
        cells = [_ratios(here, name) for name in ("throughput", "light_p99_s", "light_share")]
        lines.append(f"| {host} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _ratios(rows: list[dict[str, str]], metric: str) -> str:
    """The ratio of fair's measure to dlpm's, seed by seed: the median workload, least and most."""
    found: dict[str, float] = {}
    for load_name in dict.fromkeys(row["workload"] for row in rows):
        fair, dlpm = (
            {
                row["seed"]: float(row[metric])
                for row in rows
                if row["workload"] == load_name and row["policy"] == policy
            }
            for policy in ("fair", "dlpm")
        )
        found[load_name] = median(fair[seed] / dlpm[seed] for seed in fair)
    low, high = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
    middle = median(found.values())
    return f"{middle:.2f}; {found[low]:.2f} on {low} to {found[high]:.2f} on {high}"


def _claims(study: str) -> list[dict[str, str]]:
    """The verdicts of a study, whose claims begin with a host or, in fair-cost, with a policy."""
    return [
        dict(row, **dict(zip(("host", "target"), row["claim"].split(": ", 1), strict=True)))
        for row in _read(study, "verdicts")
    ]


def _read(study: str, table: str) -> list[dict[str, str]]:
    with (STUDIES / study / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _decisions() -> str:
    """The line of a decision's cost beside that of dlpm, by queue length."""
    rows = [row for row in load("decision")["rows"] if row["what"] == "fair decision beside dlpm's"]
    shown = "; ".join(
        f"{row['times_median']} ({row['times_min']} to {row['times_max']}) at {row['waiting']:,}"
        for row in rows
    )
    bad = [f"{row['waiting']:,}" for row in rows if row["times_median"] > MOST_TIMES]
    holds = f"does not hold: not at {', '.join(bad)}" if bad else "holds"
    claim = f"a decision takes at most {MOST_TIMES} of one of dlpm, whatever the queue's length"
    return f"| none | {claim} | {shown} | {holds} |"
