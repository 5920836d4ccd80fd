"""Judging a claim by one rule: what a study found, seed by seed, and what it found under other settings."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf, nextafter

from fairhit_lab.studies.shared.results import Interval
from fairhit_lab.studies.shared.study import Verdict


@dataclass(frozen=True, slots=True)
class Rule:
    """From `low` to `high`, both included. What is not a number keeps no rule."""

    low: float = -inf
    high: float = inf

    def __call__(self, value: float) -> bool:
        """Whether the value keeps it."""
        return self.low <= value <= self.high


def above(bound: float) -> Rule:
    """More than `bound`."""
    return Rule(low=nextafter(bound, inf))


def below(bound: float) -> Rule:
    """Less than `bound`."""
    return Rule(high=nextafter(bound, -inf))


def within(low: float, high: float) -> Rule:
    """From `low` to `high`."""
    return Rule(low, high)


def judged(
    *,
    claim: str,
    paper: str,
    ours: Interval,
    rule: Rule,
    why: str = "",
    too_low: str = "",
    too_high: str = "",
    unit: str = "",
    elsewhere: Mapping[str, Interval] | None = None,
) -> Verdict:
    """Holds if the rule does for every seed, and in the median under every other setting.

    `elsewhere`: the same number by setting; those in which it fails are always named, and those in
    which it holds where it does not as stated. A setting without a value decides nothing; without
    one of ours there is nothing to compare. `why` explains a verdict other than holds, `too_low` and
    `too_high` one by numbers on that side of the rule.
    """
    if not ours.seeds:
        said = {"claim": claim, "paper": paper, "ours": str(ours)}
        return Verdict(**said, holds="not comparable", why="a run it needs has no value")
    others = elsewhere or {}
    fits = [name for name, value in others.items() if rule(value.median)]
    fails = [name for name, value in others.items() if value.seeds and name not in fits]
    numbers = ", ".join(
        f"{name}: {value.median:.3g}{unit}" if value.seeds else f"{name}: {value}"
        for name, value in others.items()
    )
    missed = [ours.low, ours.high, *(others[name].median for name in fails)]
    texts = (why, *_sided(rule, missed, too_low, too_high), numbers)
    reason = "; ".join(text for text in texts if text) or "what was measured says otherwise"
    everywhere = rule(ours.low) and rule(ours.high)
    shown = f"{ours}{unit}"
    if everywhere and not fails:
        return Verdict(claim=claim, paper=paper, ours=shown, holds="holds", why=numbers)
    if everywhere:
        reason = f"not {_listed(fails)}; {reason}"
    elif rule(ours.median):
        also = f"; not {_listed(fails)}" if fails else ""
        reason = f"in the median, not for every seed{also}; {reason}"
    elif fits:
        reason = f"{_listed(fits)}; not {_listed(['as stated', *fails])}; {reason}"
    else:
        return Verdict(claim=claim, paper=paper, ours=shown, holds="does not hold", why=reason)
    return Verdict(claim=claim, paper=paper, ours=shown, holds="holds only if", why=reason)


def _sided(rule: Rule, values: Iterable[float], too_low: str, too_high: str) -> list[str]:
    """The reasons for the sides on which some of the values lie."""
    of = list(values)
    return [too_low] * any(value < rule.low for value in of) + [too_high] * any(
        value > rule.high for value in of
    )


def _listed(names: list[str]) -> str:
    return " or ".join(names)
