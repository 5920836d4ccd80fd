"""What both halves of DLPM's Figure 4 share: cases, measures, panel."""

from collections.abc import Sequence

from fairlead.experiments.study.panel import Panel
from fairlead.experiments.study.results import Interval, Label, Results
from fairlead.experiments.study.study import Measured, Outcome

STEP_TIME = "a10g:llama-3.2-3b"
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


def case(way: str, engines: int, waiting: int) -> Measured:
    """One point of the figure."""
    return Measured(
        labels={"way": way, "engines": engines, "waiting": waiting},
        function="fairlead.experiments.studies.dlpm.central_cost:measured",
        arguments={"way": way, "engines": engines, "waiting": waiting, "step_time": STEP_TIME},
    )


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


def share(results: Results, **labels: Label) -> Interval:
    """Of a decode step."""
    return results.interval("of_a_step", **labels)


def percent(interval: Interval) -> str:
    """A share with its range."""
    if interval.seeds == 1:
        return f"{interval.median:.1%}"
    return f"{interval.median:.1%} ({interval.low:.1%} to {interval.high:.1%})"
