"""VTC Figure 8: Poisson arrivals, long inputs against long outputs."""

from collections.abc import Sequence

from fairhit_lab.studies.shared.results import Results
from fairhit_lab.studies.shared.study import Case, Generated, Study, Verdict
from fairhit_lab.studies.vtc.differences import (
    DIFFERENCES,
    grows_under_fcfs,
    later_within_bound,
    within_bound,
)
from fairhit_lab.studies.vtc.shared import BOUND, CHOICES, PAPER, curve, simulated
from fairhit_lab.studies.vtc_artifact.measures import TABLE, rate

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
    place = {"lengths": "code"}
    others = {
        f"with the {name}'s lengths": {"lengths": name}
        for name in results.labels("lengths")
        if name != "code"
    }
    return [
        within_bound(results, f"bounded (by {BOUND:,})", place, others),
        later_within_bound(results, f"at most {BOUND:,}", place, others),
        grows_under_fcfs(results, "not fair", 1.5, place, others),
    ]


STUDY = Study(
    title="Long inputs against long outputs",
    source=f"{PAPER}, Figure 8",
    shows="the difference of accumulated service of two clients with Poisson arrivals, one with long inputs,"
    " one with long outputs",
    takes="quick 2 s; full 100 s",
    cases=cases,
    measures={
        **TABLE,
        "rate_c0": rate("c0"),
        "rate_c1": rate("c1"),
        **DIFFERENCES,
    },
    panels=[
        curve("(a) Received service rate (VTC)", "service_rate", scheduler="vtc", lengths="code"),
        curve("(b) Difference of service", "difference", "scheduler", lengths="code"),
    ],
    judge=judge,
    choices=f"{CHOICES} The caption has 64/512 and 512/64 tokens (in/out); the code and its own rows have"
    " 512/32 and 32/512: those are drawn, and both are judged.",
)
