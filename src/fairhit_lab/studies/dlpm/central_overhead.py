"""What both halves of DLPM's Figure 4 share: cases, measures, panel."""

from collections.abc import Mapping, Sequence

from fairhit_lab.studies.dlpm.systems import ON_A10G
from fairhit_lab.studies.dlpm.varied import Run, spelled
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Interval, Results
from fairhit_lab.studies.shared.study import Measured, Outcome

WAYS = ("printed", "central", "d2lpm")
CHOICES = (
    "Times of this machine's CPU and of Python (SGLang's scheduler is Python, too), matching, sorting "
    "and upkeep only; no network and no locks, which the paper's figure has. Prompts of 586 tokens, of "
    "which 546 are one of 64 prefixes (Table 2); each tree holds 64 prompts. A round schedules each of "
    "the D engines once. The decode step is the model's, 25 requests of 804 tokens, Llama-3.2-3B on an "
    "A10G: the paper does not say which. printed: the whole queue against every tree, sorted, as the "
    "paper does it; central: one queue, our index for each tree; d2lpm: routed on arrival, an index in "
    "each engine; its work is spread over router and engines, here it is the sum."
)


def cases(engines: Sequence[int], queues: Sequence[int]) -> Sequence[Measured]:
    """The points of the figure: each way to schedule so many engines with so many waiting."""
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


def round_ms(outcome: Outcome) -> float | None:
    """Milliseconds of CPU to schedule each engine once."""
    return float(outcome.summary["round_ms"])


def decode_ms(outcome: Outcome) -> float | None:
    """Milliseconds of one decode step, by the step-time model."""
    return float(outcome.summary["decode_ms"])


def of_a_step(outcome: Outcome) -> float | None:
    """The first by the second."""
    return float(outcome.summary["of_a_step"])


MEASURES = {"round_ms": round_ms, "decode_ms": decode_ms, "of_a_step": of_a_step}


def panels(x: str, x_label: str) -> Sequence[Panel]:
    """Milliseconds, and shares of a decode step."""
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


def growth(
    results: Results, way: str, over: Mapping[str, int], under: Mapping[str, int]
) -> Interval:
    """One point's milliseconds in another's."""
    return results.ratio("round_ms", {"way": way, **over}, {"way": way, **under})


def told(results: Results, **at: int) -> str:
    """Each way's milliseconds at a point, and a decode step's."""
    runs: dict[str, Run] = {way: {"way": way, **at} for way in WAYS}
    step = results.interval("decode_ms", way=WAYS[0], **at)
    return f"{spelled(results, 'round_ms', runs, ' ms')}; a decode step {step} ms"
