"""The difference of two clients' accumulated service, bounded or not: Figures 3, 7 and 8."""

from collections.abc import Mapping

from fairhit_lab.studies.shared.claims import above, below, judged
from fairhit_lab.studies.shared.results import Label, Results
from fairhit_lab.studies.shared.study import Measure, Verdict
from fairhit_lab.studies.vtc.shared import BOUND, ours, quotient, theirs
from fairhit_lab.studies.vtc_artifact.measures import difference_at, later_swing, most_difference

# In tokens, all of them.
DIFFERENCES: Mapping[str, Measure] = {
    "most_difference": most_difference,
    "later_swing": later_swing,
    "half_difference": difference_at(0.5),
    "last_difference": difference_at(1.0),
}
# Labels beside the scheduler's: those of the setting a claim is judged in, and others' by name.
Place = Mapping[str, Label]
Places = Mapping[str, Place]
HERE: Place = {}
NOWHERE: Places = {}


def within_bound(
    results: Results, printed: str, place: Place = HERE, others: Places = NOWHERE
) -> Verdict:
    """VTC, over the whole run. `printed` is what the paper says."""
    return judged(
        claim="VTC: accumulated service of both differs by no more than Theorem 4.4 allows",
        paper=f"{printed}; {theirs(results, 'most_difference', 'vtc', '', **place)}",
        ours=ours(results, "most_difference", "vtc", **place),
        rule=below(BOUND),
        too_high=f"{_grown(results, 'vtc', place)}, and in the second half it moves by"
        f" {ours(results, 'later_swing', 'vtc', **place)}",
        elsewhere={
            name: ours(results, "most_difference", "vtc", **other) for name, other in others.items()
        },
    )


def later_within_bound(
    results: Results, printed: str, place: Place = HERE, others: Places = NOWHERE
) -> Verdict:
    """VTC, in the second half: the theorem is about any interval in which both always wait."""
    return judged(
        claim="VTC: in the second half of the run the difference moves by no more than that",
        paper=f"{printed}; {theirs(results, 'later_swing', 'vtc', '', **place)}",
        ours=ours(results, "later_swing", "vtc", **place),
        rule=below(BOUND),
        too_high=_grown(results, "vtc", place),
        elsewhere={
            name: ours(results, "later_swing", "vtc", **other) for name, other in others.items()
        },
    )


def grows_under_fcfs(
    results: Results,
    printed: str,
    at_least: float,
    place: Place = HERE,
    others: Places = NOWHERE,
) -> Verdict:
    """Without bound: at the end it is more than `at_least` times what it is at half-time."""
    return judged(
        claim="FCFS: the difference goes on growing (at the end, by that at half-time)",
        paper=f"{printed}; {theirs(results, 'last_difference', 'fcfs', '', **place)}",
        ours=quotient(results, "last_difference", "half_difference", "fcfs", **place),
        rule=above(at_least),
        too_low=_grown(results, "fcfs", place),
        unit="x",
        elsewhere={
            name: quotient(results, "last_difference", "half_difference", "fcfs", **other)
            for name, other in others.items()
        },
    )


def _grown(results: Results, scheduler: str, place: Place) -> str:
    half, last = (
        ours(results, metric, scheduler, **place)
        for metric in ("half_difference", "last_difference")
    )
    return f"it is {half} at half-time, {last} at the end"
