"""The shortest match that counts for D2LPM, where all clients share a text of some length."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from fairhit_lab.studies.dlpm.shared import ON_A10G_8B
from fairhit_lab.studies.ours.contention import MAX_SKIPPED
from fairhit_lab.studies.shared.limits import ratio_limits
from fairhit_lab.studies.shared.measures import in_summary, wait
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Label, Results, interval_of
from fairhit_lab.studies.shared.study import Case, Generated, Simulated, Study, Verdict

ENGINES, CLIENTS = 4, 6
# Conversations a second and client: three quarters of what four engines can do.
RATE = 0.8
MATCHES = (1, 16, 64, 256, 1_024)
SHARED = (34, 256, 1_000, 2_000)
QUICK_MATCHES, QUICK_SHARED = (1, 64), (34, 1_000)
FULL_S, QUICK_S = 120, 40
DEFAULT = 64
# Times the shortest p99 wait; a share of the highest throughput.
LONGER, ENOUGH = 1.5, 0.95


def cases(quick: bool) -> Sequence[Case]:
    """Conversations of equal clients after a system prompt that all of them share."""
    duration_s = QUICK_S if quick else FULL_S
    texts, matches = (QUICK_SHARED, QUICK_MATCHES) if quick else (SHARED, MATCHES)
    points = [(shared, "d2lpm", least) for shared in texts for least in matches]
    points += [(shared, "least-loaded", 0) for shared in texts]
    fixed = {**ON_A10G_8B, "replicas": ENGINES, "max_misfits": MAX_SKIPPED}
    chat = {"clients": CLIENTS, "rates": (RATE,), "duration": duration_s}
    return [
        Simulated(
            labels={"shared": shared, "policy": router, "min_match": least},
            source=Generated(workload="chat", settings={**chat, "system": shared}),
            settings={**fixed, "router": router, **({"min_match": least} if least else {})},
            until_s=duration_s,
            stop_s=duration_s,
        )
        for shared, router, least in points
    ]


def judge(results: Results) -> Sequence[Verdict]:
    """A verdict per value: is it near the best, with texts of each length?"""
    least = [value for value in results.labels("min_match") if value]
    return [_near_the_best(results, value, least) for value in least]


def _near_the_best(results: Results, value: Label, among: Sequence[Label]) -> Verdict:
    """The verdict on a value; a text without one of the two numbers in every seed counts against it."""
    waits, parts, missed = [], [], []
    seeds, fewest = len({row["seed"] for row in results.rows}), inf
    for shared in results.labels("shared"):
        wait_s = {
            each: results.interval("wait_p99_s", shared=shared, min_match=each) for each in among
        }
        tokens = {
            each: results.interval("throughput", shared=shared, min_match=each) for each in among
        }
        fewest = min(fewest, wait_s[value].seeds, tokens[value].seeds)
        if not wait_s[value].seeds or not tokens[value].seeds:
            missed.append(f"{shared} (no value)")
            continue
        shortest = min(of.median for of in wait_s.values() if of.seeds)
        most = max(of.median for of in tokens.values() if of.seeds)
        waits.append(wait_s[value].median / max(shortest, 1e-6))
        parts.append(tokens[value].median / max(most, 1e-6))
        if waits[-1] > LONGER or parts[-1] < ENOUGH:
            missed.append(f"{shared}")
    *shorter, longest = map(str, results.labels("shared"))
    lengths = f"{', '.join(shorter)} and {longest}"
    few = f"; values in {fewest} of {seeds} seeds at least" if fewest < seeds else ""
    verdict = Verdict(
        claim=(
            f"min-match {value} keeps p99 waits below {LONGER:g}x the shortest and "
            f"{ENOUGH:.0%} of the throughput with {lengths} shared tokens"
        ),
        paper="any match counts",
        ours=f"{_in_words(waits, parts)}{few}",
        holds="does not hold" if missed else "holds",
        why=f"not with {', '.join(missed)} shared tokens" if missed else "",
    )
    limits = [
        ratio_limits(results, "wait_p99_s", {**at, "min_match": value}, {**at, "min_match": other})
        for shared in results.labels("shared")
        for at in [{"shared": shared, "policy": "d2lpm"}]
        for other in among
    ]
    # Of the waits: the throughput, a share of the highest, is within 0 and 1.
    return replace(verdict, least=1, greatest=max((of.high for of in limits if of), default=None))


def _in_words(waits: Sequence[float], parts: Sequence[float]) -> str:
    if not waits:
        return "no value"
    return f"{interval_of(waits)} times the shortest, at least {min(parts):.0%} of the throughput"


def _lines(title: str, metric: str, y_label: str, *, log_y: bool = False) -> Panel:
    return Panel(
        title=title,
        form="lines",
        x="min_match",
        y=metric,
        hue="shared",
        where={"policy": "d2lpm"},
        x_label="min-match, tokens",
        y_label=y_label,
        log_x=True,
        log_y=log_y,
        zero=not log_y,
    )


STUDY = Study(
    whose="ours",
    title="The least match that counts, and a text that all clients share",
    source="beyond the papers: four engines",
    shows="waits, hit rate and throughput by min-match, for shared texts of several lengths",
    takes="quick 3 s; full 12 s",
    cases=cases,
    measures={
        **in_summary("throughput", "hit_rate", "jain_system"),
        "wait_p50_s": wait("p50_s"),
        "wait_p99_s": wait("p99_s"),
    },
    panels=[
        _lines("Waits", "wait_p99_s", "p99 to the first token, s (by shared tokens)", log_y=True),
        _lines("Hit rate", "hit_rate", "cached / input tokens"),
        _lines("Throughput", "throughput", "service tokens/s, client view"),
        Panel(
            title="Least-loaded routing, for comparison",
            form="table",
            x="shared",
            where={"policy": "least-loaded"},
            columns=("wait_p50_s", "wait_p99_s", "hit_rate", "throughput"),
        ),
    ],
    judge=judge,
    choices=(
        "Four A10G with Llama-3.1-8B, ideal host. Six clients alike hold conversations of four turns "
        "with questions of 256 to 512 tokens behind the shared text, below capacity: what differs is "
        "waiting. min-match 0 is least-loaded routing, for comparison."
    ),
)
