"""Judging a claim by one rule: what a study found, seed by seed, and what it found under other settings."""

from collections.abc import Callable, Mapping

from fairlead.experiments.results import Interval
from fairlead.experiments.study import Verdict

Rule = Callable[[float], bool]


def above(bound: float) -> Rule:
    """More than `bound`."""
    return lambda value: value > bound


def below(bound: float) -> Rule:
    """Less than `bound`."""
    return lambda value: value < bound


def within(low: float, high: float) -> Rule:
    """From `low` to `high`."""
    return lambda value: low <= value <= high


def judged(
    *,
    claim: str,
    paper: str,
    ours: Interval,
    rule: Rule,
    why: str = "",
    unit: str = "",
    elsewhere: Mapping[str, Interval] | None = None,
) -> Verdict:
    """Holds if the rule does for every seed, and in the median under every other setting.

    `elsewhere`: the same number by setting, named as the end of "holds only if". `why` explains a
    verdict other than holds. `rule` must hold between any two values for which it does.
    """
    others = elsewhere or {}
    fits = [name for name, value in others.items() if rule(value.median)]
    fails = [name for name in others if name not in fits]
    numbers = ", ".join(f"{name}: {value.median:.3g}{unit}" for name, value in others.items())
    reason = (
        "; ".join(text for text in (why, numbers) if text) or "what was measured says otherwise"
    )
    everywhere = rule(ours.low) and rule(ours.high)
    shown = f"{ours}{unit}"
    if everywhere and not fails:
        return Verdict(claim=claim, paper=paper, ours=shown, holds="holds", why=numbers)
    if everywhere:
        reason = f"not {_listed(fails)}; {reason}"
    elif rule(ours.median):
        reason = f"in the median, not for every seed; {reason}"
    elif fits:
        reason = f"{_listed(fits)}; {reason}"
    else:
        return Verdict(claim=claim, paper=paper, ours=shown, holds="does not hold", why=reason)
    return Verdict(claim=claim, paper=paper, ours=shown, holds="holds only if", why=reason)


def _listed(names: list[str]) -> str:
    return " or ".join(names)
