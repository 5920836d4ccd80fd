"""VTC Figure 8: Poisson arrivals, long inputs against long outputs."""

from collections.abc import Sequence

from fairlead.experiments.artifact.measures import (
    TABLE,
    difference_at,
    later_swing,
    most_difference,
    rate,
)
from fairlead.experiments.studies.vtc.shared import (
    BOUND,
    CHOICES,
    LATE,
    PAPER,
    curve,
    ours,
    quotient,
    simulated,
)
from fairlead.experiments.study.claims import above, below, judged
from fairlead.experiments.study.results import Results
from fairlead.experiments.study.study import Case, Generated, Study, Verdict

# Inputs and outputs of both clients: as the code and its rows have them, and as the caption says.
LENGTHS = {
    "code": {"input_len": (512, 32), "output_len": (32, 512)},
    "caption": {"input_len": (64, 512), "output_len": (512, 64)},
}


def cases(quick: bool) -> Sequence[Case]:
    """FCFS and VTC, with both sets of lengths; 10 minutes of requests, quick 4 and the code's lengths."""
    variants = ("code",) if quick else tuple(LENGTHS)
    duration_s = 240 if quick else 600
    return [
        simulated(
            name,
            Generated(
                workload="poisson_short_long_2",
                settings={"duration": duration_s, **LENGTHS[variant]},
            ),
            labels={"lengths": variant},
        )
        for variant in variants
        for name in ("fcfs", "vtc")
    ]


def judge(results: Results) -> Sequence[Verdict]:
    """Bounded or not, whichever lengths were meant."""
    others = [str(name) for name in results.labels("lengths") if name != "code"]
    return [
        judged(
            claim="VTC: accumulated service of both differs by no more than Theorem 4.4 allows",
            paper=f"bounded (by {BOUND:,})",
            ours=ours(results, "most_difference", "vtc", lengths="code"),
            rule=below(BOUND),
            why=LATE,
            elsewhere={
                f"with the {name}'s lengths": ours(results, "most_difference", "vtc", lengths=name)
                for name in others
            },
        ),
        judged(
            claim="VTC: in the second half, where both always wait, it moves by no more than that",
            paper=f"at most {BOUND:,}",
            ours=ours(results, "later_swing", "vtc", lengths="code"),
            rule=below(BOUND),
            why="it goes on growing",
            elsewhere={
                f"with the {name}'s lengths": ours(results, "later_swing", "vtc", lengths=name)
                for name in others
            },
        ),
        judged(
            claim="FCFS: the difference goes on growing (at the end, by that at half-time)",
            paper="not fair",
            ours=quotient(results, "last_difference", "half_difference", "fcfs", lengths="code"),
            rule=above(1.5),
            why="it levels off",
            unit="x",
            elsewhere={
                f"with the {name}'s lengths": quotient(
                    results, "last_difference", "half_difference", "fcfs", lengths=name
                )
                for name in others
            },
        ),
    ]


STUDY = Study(
    title="Long inputs against long outputs",
    source=f"{PAPER}, Figure 8",
    shows="VTC bounds the difference of service between clients of opposite lengths",
    takes="quick 2 s; full 100 s",
    cases=cases,
    measures={
        **TABLE,
        "rate_c0": rate("c0"),
        "rate_c1": rate("c1"),
        "most_difference": most_difference,
        "later_swing": later_swing,
        "half_difference": difference_at(0.5),
        "last_difference": difference_at(1.0),
    },
    panels=[
        curve("(a) Received service rate (VTC)", "service_rate", scheduler="vtc", lengths="code"),
        curve("(b) Difference of service", "difference", "scheduler", lengths="code"),
    ],
    judge=judge,
    choices=f"{CHOICES} The caption has 64/512 and 512/64 tokens (in/out); the code and its own rows have"
    " 512/32 and 32/512: those are drawn, and both are judged.",
)
