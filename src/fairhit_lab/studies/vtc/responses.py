"""Response times on the real trace, of some of its 27 clients and of the worst: Figures 12 and 13."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from fairhit_lab.studies.shared.claims import Rule, judged
from fairhit_lab.studies.shared.results import Results
from fairhit_lab.studies.shared.study import Case, Measure, Verdict
from fairhit_lab.studies.vtc.shared import (
    HEAVIEST,
    MIDDLING,
    REAL,
    SHOWN,
    measured,
    ours,
    simulated,
    theirs,
    told,
)
from fairhit_lab.studies.vtc_artifact.measures import longest_mean_response, response

# In seconds, all of them.
RESPONSES: Mapping[str, Measure] = {
    "middling_s": response(*MIDDLING),
    "second_s": response(HEAVIEST[0]),
    "heaviest_s": response(HEAVIEST[1]),
    "others_s": longest_mean_response(*HEAVIEST),
    "longest_s": longest_mean_response(),
}
# What they are called in a reason.
NAMES = {
    "middling_s": "the 13th and 14th client",
    "second_s": "the second heaviest",
    "heaviest_s": "the heaviest",
    "others_s": "the slowest but for these two",
    "longest_s": "the slowest of all",
}


def on_real_trace(
    names: Sequence[str], rows: Sequence[str], everybody: Collection[str] = ()
) -> list[Case]:
    """These schedulers, and the authors' rows of some; curves of four clients, or of `everybody`."""
    return [
        *(simulated(name, REAL, shown=None if name in everybody else SHOWN) for name in names),
        *(measured(name, "real", shown=SHOWN) for name in rows),
    ]


class WaitClaim(NamedTuple):
    """What it says, of which of RESPONSES under whom; what the paper says; the rule, in seconds."""

    claim: str
    metric: str
    scheduler: str
    printed: str
    rule: Rule


def wait_verdict(results: Results, of: WaitClaim) -> Verdict:
    """Where it fails the other response times are told."""
    beside = {metric: name for metric, name in NAMES.items() if metric != of.metric}
    reason = f"beside that {told(results, of.scheduler, beside, ' s')}"
    return judged(
        claim=of.claim,
        paper=f"{of.printed}; {theirs(results, of.metric, of.scheduler, ' s')}",
        ours=ours(results, of.metric, of.scheduler),
        rule=of.rule,
        too_low=reason,
        too_high=reason,
        unit=" s",
    )
