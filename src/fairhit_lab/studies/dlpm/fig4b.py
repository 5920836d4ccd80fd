"""DLPM Figure 4b: a central scheduler's overhead by the length of its queue, timed on our own code."""

from collections.abc import Sequence

from fairhit_lab.studies.dlpm import central_overhead as overhead
from fairhit_lab.studies.shared.claims import Rule, below, judged
from fairhit_lab.studies.shared.results import Results
from fairhit_lab.studies.shared.study import Case, Study, Verdict

ENGINES = 8
QUEUES = (50, 200, 800, 3_200)
QUICK_QUEUES = (50, 400)


def cases(quick: bool) -> Sequence[Case]:
    """The paper's way, an index for each tree, and D2LPM, over the queue's length."""
    return overhead.cases((ENGINES,), QUICK_QUEUES if quick else QUEUES)


def judge(results: Results) -> Sequence[Verdict]:
    """How much more a longer queue costs, each way."""
    queues = [waiting for waiting in results.labels("waiting") if isinstance(waiting, int)]
    shortest, longest = min(queues), max(queues)
    times = longest / shortest
    span = f"{shortest:,} to {longest:,} waiting ({times:g}x)"
    asked = (
        (
            f"as printed the cost grows with the queue, {span}, at least half as fast",
            "dramatically",
            "printed",
            Rule(low=times / 2),
        ),
        *(
            (
                f"without matching the queue again ({way}) it grows to less than 3x of itself, {span}",
                "is not considered",
                way,
                below(3),
            )
            for way in overhead.WAYS[1:]
        ),
    )
    return [
        judged(
            claim=claim,
            paper=paper,
            ours=overhead.growth(
                results,
                way,
                {"engines": ENGINES, "waiting": longest},
                {"engines": ENGINES, "waiting": shortest},
            ),
            unit="x",
            rule=rule,
            why=f"with {longest:,} {overhead.told(results, engines=ENGINES, waiting=longest)}",
        )
        for claim, paper, way, rule in asked
    ]


STUDY = Study(
    title="A central scheduler's overhead by the queue",
    source="DLPM (arXiv:2501.14312v1), Figure 4b",
    shows="what choosing the next requests costs with 50 to 3,200 waiting, three ways, beside a decode step",
    takes="quick 5 s; full 2 min",
    cases=cases,
    measures=overhead.MEASURES,
    panels=overhead.panels("waiting", f"waiting requests, {ENGINES} engines"),
    judge=judge,
    choices=overhead.CHOICES,
)
