"""VTC Figure 18: response times of all 27 clients of the real trace, by scheduler, with the profiled cost."""

from collections.abc import Sequence

from fairhit_lab.studies.shared.claims import above, below, judged
from fairhit_lab.studies.shared.results import Interval, Results
from fairhit_lab.studies.shared.study import Case, Study, Verdict
from fairhit_lab.studies.vtc.shared import (
    CHOICES,
    HEAVIEST,
    PAPER,
    REAL,
    THIRD,
    curve,
    ours,
    simulated,
    under,
)
from fairhit_lab.studies.vtc_artifact.measures import TABLE, longest_mean_response, response

NAMES = ("fcfs", "lcf", "vtc", "vtc-predict", "vtc-oracle", "rpm-5", "rpm-20", "rpm-30")


def cases(_: bool) -> Sequence[Case]:
    """Those of Table 3."""
    return [simulated(name, REAL, worth="profiled") for name in NAMES]


def judge(results: Results) -> Sequence[Verdict]:
    """Who asks for little waits little, where that is so."""
    verdicts = [
        judged(
            claim=f"{name}: clients that ask for little wait little"
            " (the longest mean response time but for the three heaviest, by FCFS's)",
            paper="low response times",
            ours=results.ratio("others_s", _simulated(name), _simulated("fcfs")),
            rule=below(0.25),
            too_high=under(results, "others_s", " s", name, "fcfs"),
            unit="x",
        )
        for name in ("vtc", "vtc-predict", "vtc-oracle", "lcf")
    ]
    return [
        *verdicts,
        judged(
            claim="FCFS: the others do not keep them low (the same, in seconds)",
            paper="not matched by other baselines",
            ours=ours(results, "others_s", "fcfs"),
            rule=above(30),
            too_low=under(results, "others_s", " s", "fcfs", "vtc"),
            unit=" s",
        ),
        judged(
            claim="LCF: clients with constantly high rates pay for it"
            " (mean response time of the three heaviest, by VTC's)",
            paper="excessively high response times",
            ours=_lcf_by_vtc(results, "heaviest_s"),
            rule=above(1.2),
            too_low=under(results, "heaviest_s", " s", "lcf", "vtc"),
            unit="x",
            elsewhere={
                f"for the {name}": _lcf_by_vtc(results, metric)
                for name, metric in (
                    ("third heaviest", "third_s"),
                    ("second heaviest", "second_s"),
                    ("heaviest", "first_s"),
                )
            },
        ),
    ]


def _lcf_by_vtc(results: Results, metric: str) -> Interval:
    return results.ratio(metric, _simulated("lcf"), _simulated("vtc"))


def _simulated(name: str) -> dict[str, str]:
    return {"scheduler": name, "origin": "simulated"}


STUDY = Study(
    title="Response times of all clients, profiled cost",
    source=f"{PAPER}, Figure 18",
    shows="response times of all clients of the real trace, under the schedulers of Table 3",
    takes="quick 7 s; full 40 s",
    cases=cases,
    measures={
        **TABLE,
        "heaviest_s": response(THIRD, *HEAVIEST),
        "third_s": response(THIRD),
        "second_s": response(HEAVIEST[0]),
        "first_s": response(HEAVIEST[1]),
        "others_s": longest_mean_response(THIRD, *HEAVIEST),
    },
    panels=[curve(name, "response_time", scheduler=name) for name in NAMES],
    judge=judge,
    choices=f"{CHOICES} The VTC family charges the profiled cost here, as in Table 3.",
)
