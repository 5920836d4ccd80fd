"""DLPM Figure 4a: a central scheduler's overhead by the number of engines, timed on our own code."""

from collections.abc import Sequence

from fairhit_lab.studies.dlpm import central_overhead as overhead
from fairhit_lab.studies.shared.claims import Rule, above, judged, within
from fairhit_lab.studies.shared.results import Results
from fairhit_lab.studies.shared.study import Case, Study, Verdict

ENGINES = (1, 2, 4, 8)
QUICK_ENGINES = (1, 8)
WAITING = 200
MOST = {"engines": max(ENGINES), "waiting": WAITING}
ONE = {"engines": 1, "waiting": WAITING}


def cases(quick: bool) -> Sequence[Case]:
    """The paper's way, an index for each tree, and D2LPM, over D."""
    return overhead.cases(QUICK_ENGINES if quick else ENGINES, (WAITING,))


def judge(results: Results) -> Sequence[Verdict]:
    """What the paper's way costs, how that grows, and what the other ways cost beside it."""
    share = results.interval("of_a_step", way="printed", **MOST)
    growth = overhead.growth(results, "printed", MOST, ONE)
    why = overhead.told(results, **MOST)
    return [
        *(
            judged(
                claim=f"as printed, {WAITING} waiting cost {claim} of a decode step at D = {max(ENGINES)}",
                paper="about 40 %, with synchronisation",
                ours=share,
                rule=rule,
                why=f"{why}; neither the paper's CPU nor its synchronisation is here",
            )
            for claim, rule in (
                ("about 40 % (30 to 50 %)", within(0.3, 0.5)),
                ("a notable part, a tenth or more,", Rule(low=0.1)),
            )
        ),
        judged(
            claim=f"that cost grows with the engines, D = 1 to {max(ENGINES)}, at least half as fast",
            paper="dramatically",
            ours=growth,
            unit="x",
            rule=Rule(low=max(ENGINES) / 2),
            why=why,
        ),
        *(
            judged(
                claim=f"without matching the queue again ({way}) it is less than half of that at D = "
                f"{max(ENGINES)}: as printed over this way",
                paper="a decentralised scheduler is needed",
                ours=results.ratio("round_ms", {"way": "printed", **MOST}, {"way": way, **MOST}),
                unit="x",
                rule=above(2),
                why=why,
            )
            for way in overhead.WAYS[1:]
        ),
    ]


STUDY = Study(
    title="A central scheduler's overhead by engines",
    source="DLPM (arXiv:2501.14312v1), Figure 4a",
    shows="what choosing the next requests costs with 1 to 8 engines, three ways, beside a decode step",
    takes="quick 4 s; full 40 s",
    cases=cases,
    measures=overhead.MEASURES,
    panels=overhead.panels("engines", f"engines D, {WAITING} waiting"),
    judge=judge,
    choices=overhead.CHOICES,
)
