"""DLPM Figure 4a: a central scheduler's overhead by the number of engines, timed on our own code."""

from collections.abc import Sequence

from fairlead.experiments.studies.dlpm.central_overhead import (
    CHOICES,
    MEASURES,
    WAYS,
    case,
    panels,
    percent,
    share,
)
from fairlead.experiments.study.results import Results
from fairlead.experiments.study.study import Case, Study, Verdict

ENGINES = (1, 2, 4, 8)
QUICK_ENGINES = (1, 8)
WAITING = 200
PAPER = 0.4
# Another machine, another model: as large as printed if it is within a factor of two and a half.
FACTOR = 2.5


def cases(quick: bool) -> Sequence[Case]:
    """The paper's way, an index for each tree, and D2LPM, over D."""
    return [
        case(way, engines, WAITING)
        for way in WAYS
        for engines in (QUICK_ENGINES if quick else ENGINES)
    ]


def judge(results: Results) -> Sequence[Verdict]:
    """The paper's way is as costly as it says; an index is not."""
    most = max(ENGINES)
    printed = share(results, way="printed", engines=most)
    growth = results.ratio(
        "round_ms", {"way": "printed", "engines": most}, {"way": "printed", "engines": 1}
    )
    as_large = PAPER / FACTOR <= printed.median <= PAPER * FACTOR
    return [
        Verdict(
            claim=f"as printed, {WAITING} waiting cost a large part of a decode step at D = {most}",
            paper="about 40 %, with synchronisation",
            ours=percent(printed),
            holds="holds" if as_large else "does not hold",
            why="" if as_large else f"not within a factor of {FACTOR:g}: another CPU and GPU",
        ),
        Verdict(
            claim=f"that cost grows with the engines, D = 1 to {most}",
            paper="dramatically",
            ours=f"{growth}x",
            holds="holds" if growth.low > most / 2 else "does not hold",
            why="" if growth.low > most / 2 else "less than half as fast as the engines",
        ),
        *(_cheaper(results, way, most) for way in WAYS[1:]),
    ]


def _cheaper(results: Results, way: str, engines: int) -> Verdict:
    own = share(results, way=way, engines=engines)
    less = results.ratio(
        "round_ms", {"way": "printed", "engines": engines}, {"way": way, "engines": engines}
    )
    return Verdict(
        claim=f"without matching the queue again ({way}) it is less than half of that at D = {engines}",
        paper="a decentralised scheduler is needed",
        ours=f"{percent(own)} of a decode step, {less}x less",
        holds="holds" if less.low > 2 else "does not hold",
        why="" if less.low > 2 else "the upkeep of the index takes as long",
    )


STUDY = Study(
    title="A central scheduler's overhead by engines",
    source="DLPM (arXiv:2501.14312v1), Figure 4a",
    shows="matching the whole queue against every tree costs what the paper says; an index does not",
    takes="quick 4 s; full 40 s",
    cases=cases,
    measures=MEASURES,
    panels=panels("engines", f"engines D, {WAITING} waiting"),
    judge=judge,
    choices=CHOICES,
)
