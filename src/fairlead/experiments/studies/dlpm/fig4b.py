"""DLPM Figure 4b: a central scheduler's overhead by the length of its queue, timed on our own code."""

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
from fairlead.experiments.study.results import Interval, Results, interval_of
from fairlead.experiments.study.study import Case, Study, Verdict

ENGINES = 8
QUEUES = (50, 200, 800, 3_200)
QUICK_QUEUES = (50, 400)


def cases(quick: bool) -> Sequence[Case]:
    """The paper's way, an index for each tree, and D2LPM, over the queue's length."""
    return [
        case(way, ENGINES, waiting)
        for way in WAYS
        for waiting in (QUICK_QUEUES if quick else QUEUES)
    ]


def judge(results: Results) -> Sequence[Verdict]:
    """As printed it grows with the queue; with an index it does not."""
    queues = [waiting for waiting in results.labels("waiting") if isinstance(waiting, int)]
    longer = max(queues) / min(queues)
    printed, *others = (_growth(results, way, queues) for way in WAYS)
    grows = printed.low > longer / 2
    return [
        Verdict(
            claim=f"as printed the cost grows with the queue, {min(queues)} to {max(queues)}",
            paper="dramatically",
            ours=f"{printed}x for {longer:g}x the queue, "
            f"{percent(share(results, way='printed', waiting=max(queues)))} of a decode step at its end",
            holds="holds" if grows else "does not hold",
            why="" if grows else "less than half as fast as the queue",
        ),
        *(
            Verdict(
                claim=f"without matching the queue again ({way}) it does not grow with the queue",
                paper="is not considered",
                ours=f"{growth}x for {longer:g}x the queue, "
                f"{percent(share(results, way=way, waiting=max(queues)))} of a decode step at its end",
                holds="holds" if growth.high < 3 else "does not hold",
                why="" if growth.high < 3 else f"more than 3x: {growth}x",
            )
            for way, growth in zip(WAYS[1:], others, strict=True)
        ),
    ]


def _growth(results: Results, way: str, queues: Sequence[int]) -> Interval:
    """From the shortest to the longest queue."""
    longest = results.values("round_ms", way=way, waiting=max(queues))
    shortest = results.values("round_ms", way=way, waiting=min(queues))
    return interval_of(longest[seed] / shortest[seed] for seed in longest)


STUDY = Study(
    title="A central scheduler's overhead by the queue",
    source="DLPM (arXiv:2501.14312v1), Figure 4b",
    shows="matching the whole queue grows with it, an index of it does not",
    takes="quick 5 s; full 2 min",
    cases=cases,
    measures=MEASURES,
    panels=panels("waiting", f"waiting requests, {ENGINES} engines"),
    judge=judge,
    choices=CHOICES,
)
