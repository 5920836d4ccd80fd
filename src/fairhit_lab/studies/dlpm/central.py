"""DLPM's Figure 4: the cost of a central scheduler by its engines and by its queue, timed on our own code."""

from collections.abc import Callable, Mapping, Sequence
from math import inf

from fairhit_lab.studies.dlpm.shared import FLEET, ON_A10G, Run, spelled
from fairhit_lab.studies.shared.claims import Rule, above, below, could_show, judged, within
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Interval, Results
from fairhit_lab.studies.shared.study import Measure, Measured, Outcome, Study, Verdict

WAYS = ("printed", "central", "d2lpm", FLEET)
# Figure 4a: engines, with so many waiting; Figure 4b: waiting requests, in front of so many engines.
ENGINES, QUICK_ENGINES, WAITING = (1, 2, 4, 8), (1, 8), 200
QUEUES, QUICK_QUEUES, IN_FRONT_OF = (50, 200, 800, 3_200), (50, 400), 8
ANY_TIME = could_show(0, inf)  # a time, or how much it grows
CHOICES = (
    "Times of this machine's CPU and of Python (SGLang's scheduler is Python, too), matching, sorting "
    "and upkeep only; no network and no locks, which the paper's figure has. Prompts of 586 tokens, of "
    "which 546 are one of 64 prefixes (Table 2); each tree holds 64 prompts. A round schedules each of "
    "the D engines once. The decode step is the model's, 25 requests of 804 tokens, Llama-3.2-3B on an "
    "A10G: the paper does not say which. printed: the whole queue against every tree, sorted, as the "
    "paper does it; central: one queue, our index for each tree; d2lpm: routed on arrival, an index in "
    "each engine; its work is spread over router and engines, here it is the sum; fleet, beyond the paper: "
    "the gateway's one queue under `fair`, which ranks the waiting prompts once for all engines. What the "
    "run can show: a time has no limit but what the machine makes of it, so that any share of a decode step "
    "and any growth may come out; no wait, rate or duration is in it."
)


def _cases(engines: Sequence[int], queues: Sequence[int]) -> Sequence[Measured]:
    """The points of a figure: each way to schedule so many engines with so many waiting."""
    return [
        Measured(
            labels={"way": way, "engines": number, "waiting": waiting},
            function="fairhit_lab.studies.dlpm.central_cost:measured",
            arguments={"way": way, "engines": number, "waiting": waiting, **ON_A10G},
        )
        for way in WAYS
        for number in engines
        for waiting in queues
    ]


def _timed(name: str) -> Measure:
    """A number that `central_cost` returns: milliseconds of a round and of a decode step, and their ratio."""

    def measure(outcome: Outcome) -> float:
        return float(outcome.summary[name])

    return measure


MEASURES = {name: _timed(name) for name in ("round_ms", "decode_ms", "of_a_step")}


def _panels(x: str, x_label: str) -> Sequence[Panel]:
    """Panels of a round's milliseconds and of its share of a decode step."""
    shown = {
        "round_ms": ("A scheduling of all engines", "ms of CPU"),
        "of_a_step": ("Beside a decode step of 25 requests", "share of a decode step"),
    }
    return [
        Panel(
            title=title,
            form="lines",
            x=x,
            y=metric,
            hue="way",
            x_label=x_label,
            y_label=y_label,
            log_x=True,
            log_y=True,
        )
        for metric, (title, y_label) in shown.items()
    ]


def _growth(results: Results, way: str, over: Run, under: Run) -> Interval:
    """The milliseconds of a round at one point, over those at another."""
    return results.ratio("round_ms", {"way": way, **over}, {"way": way, **under})


def _all_ways(results: Results, at: Mapping[str, int]) -> str:
    """The milliseconds of a round by each way at a point, and those of a decode step."""
    runs: dict[str, Run] = {way: {"way": way, **at} for way in WAYS}
    step = results.interval("decode_ms", way=WAYS[0], **at)
    return f"{spelled(results, 'round_ms', runs, ' ms')}; a decode step {step} ms"


def _judge_engines(results: Results) -> Sequence[Verdict]:
    """Verdicts on the cost of matching the queue as printed, and of the two other ways."""
    most, one = ({"engines": number, "waiting": WAITING} for number in (max(ENGINES), 1))
    why = _all_ways(results, most)
    return [
        *(
            judged(
                claim=f"as printed, {WAITING} waiting cost {claim} of a decode step at D = {max(ENGINES)}",
                paper="about 40 %, with synchronisation",
                ours=results.interval("of_a_step", way="printed", **most),
                rule=rule,
                why=f"{why}; neither the paper's CPU nor its synchronisation is here",
                reach=ANY_TIME,
            )
            for claim, rule in (
                ("about 40 % (30 to 50 %)", within(0.3, 0.5)),
                ("a notable part, a tenth or more,", Rule(low=0.1)),
            )
        ),
        judged(
            claim=f"that cost grows with the engines, D = 1 to {max(ENGINES)}, at least half as fast",
            paper="dramatically",
            ours=_growth(results, "printed", most, one),
            unit="x",
            rule=Rule(low=max(ENGINES) / 2),
            why=why,
            reach=ANY_TIME,
        ),
        *(
            judged(
                whose="ours",
                claim=f"without matching the queue again ({way}) it is less than half of that at D = "
                f"{max(ENGINES)}: as printed over this way",
                paper="a decentralised scheduler is needed",
                ours=results.ratio("round_ms", {"way": "printed", **most}, {"way": way, **most}),
                unit="x",
                rule=above(2),
                why=why,
                reach=ANY_TIME,
            )
            for way in WAYS[1:]
        ),
    ]


def _judge_queues(results: Results) -> Sequence[Verdict]:
    """Verdicts on the growth of each way's cost with the queue."""
    queues = [waiting for waiting in results.labels("waiting") if isinstance(waiting, int)]
    shortest, longest = (
        {"engines": IN_FRONT_OF, "waiting": waiting} for waiting in (min(queues), max(queues))
    )
    times = max(queues) / min(queues)
    span = f"{min(queues):,} to {max(queues):,} waiting ({times:g}x)"
    printed = f"as printed the cost grows with the queue, {span}, at least half as fast"
    asked = [(printed, "dramatically", WAYS[0], Rule(low=times / 2))]
    asked += [
        (
            f"without matching the queue again ({way}) it grows to less than 3x of itself, {span}",
            "is not considered",
            way,
            below(3),
        )
        for way in WAYS[1:]
    ]
    return [
        judged(
            claim=claim,
            paper=paper,
            whose="paper" if way == WAYS[0] else "ours",
            ours=_growth(results, way, longest, shortest),
            unit="x",
            rule=rule,
            why=f"with {max(queues):,} {_all_ways(results, longest)}",
            reach=ANY_TIME,
        )
        for claim, paper, way, rule in asked
    ]


def _study(
    letter: str,
    *,
    by: str,
    shows: str,
    takes: str,
    points: Callable[[bool], tuple[Sequence[int], Sequence[int]]],
    judge: Callable[[Results], Sequence[Verdict]],
    panels: Sequence[Panel],
) -> Study:
    return Study(
        title=f"A central scheduler's overhead by {by}",
        source=f"DLPM (arXiv:2501.14312v1), Figure 4{letter}",
        shows=f"what choosing the next requests costs with {shows}, four ways, beside a decode step",
        takes=takes,
        cases=lambda quick: _cases(*points(quick)),
        measures=MEASURES,
        panels=panels,
        judge=judge,
        choices=CHOICES,
    )


STUDIES = {
    "dlpm-fig4a": _study(
        "a",
        by="engines",
        shows="1 to 8 engines",
        takes="quick 2 s; full 4 s",
        points=lambda quick: (QUICK_ENGINES if quick else ENGINES, (WAITING,)),
        judge=_judge_engines,
        panels=_panels("engines", f"engines D, {WAITING} waiting"),
    ),
    "dlpm-fig4b": _study(
        "b",
        by="the queue",
        shows="50 to 3,200 waiting",
        takes="quick 5 s; full 11 s",
        points=lambda quick: ((IN_FRONT_OF,), QUICK_QUEUES if quick else QUEUES),
        judge=_judge_queues,
        panels=_panels("waiting", f"waiting requests, {IN_FRONT_OF} engines"),
    ),
}
