"""Claims as rows of a study, and the one rule by which each is judged.

Over the seeds, over other settings, and within what the run could have shown.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite, nextafter

from fairhit_lab.studies.shared.results import Interval, Label, Results, three_digits
from fairhit_lab.studies.shared.study import Holds, Verdict, Whose

UP_TO = 0.75  # of a printed extreme, and as much above it


@dataclass(frozen=True, slots=True)
class Rule:
    """An interval of values, both ends included. NaN is outside of every rule."""

    low: float = -inf
    high: float = inf

    def __call__(self, value: float) -> bool:
        """True if the value is inside."""
        return self.low <= value <= self.high


def above(bound: float) -> Rule:
    """The rule of values above `bound`."""
    return Rule(low=nextafter(bound, inf))


def below(bound: float) -> Rule:
    """The rule of values below `bound`."""
    return Rule(high=nextafter(bound, -inf))


def within(low: float, high: float) -> Rule:
    """The rule of values from `low` to `high`."""
    return Rule(low, high)


def up_to(printed: float) -> Rule:
    """The rule of an "up to": within a third of the printed number, below and above it.

    Rates, lengths and quanta are not the paper's, so its extreme cannot be met more closely.
    """
    return Rule(printed * UP_TO, printed / UP_TO)


def could_show(low: float, high: float) -> Rule:
    """The least and greatest value that a run could have shown, by its settings."""
    assert low <= high, (low, high)
    return Rule(low, high)


SHARE = could_show(0, 1)
ANY = could_show(0, inf)


def limited(verdict: Verdict, on: Mapping[str, tuple[Rule, Rule]]) -> Verdict:
    """The verdict on a claim about all of some workloads, with the least and greatest value within reach.

    `on` has for each workload what its runs could have shown, and the rule of the claim there. The verdict is
    "not comparable" if on some workload no value within reach keeps the rule, or if on each every value does.
    """
    if not on:
        return verdict
    reaches = [reach for reach, _ in on.values()]
    found = replace(
        verdict,
        least=_finite(min(reach.low for reach in reaches)),
        greatest=_finite(max(reach.high for reach in reaches)),
    )
    never = [load for load, (reach, rule) in on.items() if _is_beyond(reach, rule)]
    decided = {load: _decided(reach, rule) for load, (reach, rule) in on.items()}
    if verdict.holds == _NOT_COMPARABLE or not (never or all(decided.values())):
        return found
    first = f"on {never[0]} it {decided[never[0]]}" if never else next(iter(decided.values()))
    return replace(found, holds=_NOT_COMPARABLE, why="; ".join(filter(None, (first, verdict.why))))


def jain_of(clients: int) -> Rule:
    """The values of Jain's index over so many clients: 1/n if one gets all, 1 if all get the same."""
    return could_show(1 / clients, 1)


def judged(
    *,
    claim: str,
    paper: str,
    ours: Interval,
    rule: Rule,
    why: str = "",
    unit: str = "",
    elsewhere: Mapping[str, Interval] | None = None,
    reach: Rule | None = None,
    whose: Whose = "paper",
) -> Verdict:
    """The verdict on a claim: it holds if `ours` keeps the rule in every seed, and in the median elsewhere.

    `elsewhere` has the same number by setting. The verdict names the settings that break the rule, and
    those that keep it where the stated setting breaks it; a setting without a value is not judged.
    `reach` are the least and greatest value that the run could have shown: a claim is "not comparable"
    without a value of ours, and where every value or none within reach keeps the rule. Seeds and
    settings are reported apart: a claim that fails in a setting holds "under conditions only". `why`
    explains a verdict other than "holds".
    """
    if not ours.seeds:
        return Verdict(
            claim=claim,
            paper=paper,
            ours=str(ours),
            holds=_NOT_COMPARABLE,
            why="a run it needs has no value",
            whose=whose,
        )
    if reach:  # what a run showed, it could show: an expected limit may be passed by a little
        reach = could_show(min(reach.low, ours.low), max(reach.high, ours.high))
    others = elsewhere or {}
    numbers = ", ".join(
        f"{name}: {value.median:.3g}{unit}" if value.seeds else f"{name}: {value}"
        for name, value in others.items()
    )
    reason = (
        "; ".join(text for text in (why, numbers) if text) or "what was measured says otherwise"
    )
    if reach and (limit := _decided(reach, rule)):
        holds, reason = _NOT_COMPARABLE, f"{limit}{unit}; {reason}"
    else:
        holds, reason = _kind_of(ours, rule, others, reason, numbers)
    return Verdict(
        claim=claim,
        paper=paper,
        ours=f"{ours}{unit}",
        holds=holds,
        why=reason,
        whose=whose,
        least=_finite(reach.low) if reach else None,
        greatest=_finite(reach.high) if reach else None,
    )


_NOT_COMPARABLE: Holds = "not comparable"


def _kind_of(
    ours: Interval, rule: Rule, others: Mapping[str, Interval], reason: str, numbers: str
) -> tuple[Holds, str]:
    """The kind of verdict, and its reason, from the stated setting's seeds and the other settings."""
    fits = [name for name, value in others.items() if rule(value.median)]
    fails = [name for name, value in others.items() if value.seeds and name not in fits]
    if rule(ours.low) and rule(ours.high):
        if not fails:
            return "holds", numbers
        return "holds under conditions only", f"not {_listed(fails)}; {reason}"
    if rule(ours.median):
        seeds = "as stated in the median, not for every seed"
        if not fails:
            return "holds in the median only", f"{seeds}; {reason}"
        return "holds under conditions only", f"not {_listed(fails)}; {seeds}; {reason}"
    if fits:
        places = f"{_listed(fits)}; not {_listed(['as stated', *fails])}"
        return "holds under conditions only", f"{places}; {reason}"
    return "does not hold", reason


def _is_beyond(reach: Rule, rule: Rule) -> bool:
    """True if no value within reach keeps the rule."""
    return reach.high < rule.low or reach.low > rule.high


def _decided(reach: Rule, rule: Rule) -> str:
    """Why the run could show one side of the claim alone; empty if it could show both."""
    span = f"{_end(reach.low)} to {_end(reach.high)}"
    if _is_beyond(reach, rule):
        asked = [_end(end) for end in (rule.low, rule.high) if isfinite(end)]
        return f"asks for {' to '.join(asked)}, and the run could show only {span}"
    if rule(reach.low) and rule(reach.high):
        return f"cannot fail: the run could show only {span}"
    return ""


def _end(value: float) -> str:
    return three_digits(value) if isfinite(value) else "any value"


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


def _listed(names: list[str]) -> str:
    return " or ".join(names)


# A number read from the rows; None where the cases it needs were not run.
Value = Callable[[Results], Interval | None]
# Text, or numbers read from the rows that stand in a text.
Words = str | Callable[[Results], object]


def words(*parts: Words) -> Callable[[Results], str]:
    """A text with numbers in it: parts that read the rows are called when the claim is judged."""
    return lambda results: "".join(
        part if isinstance(part, str) else str(part(results)) for part in parts
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A claim: the paper's value, the number of ours that decides it, and the rule for that number.

    `elsewhere` are the same number under other settings; `why` is the reason shown unless it holds.
    `reach` is what the run could have shown; `whose` is "ours" for a claim that the paper does not make.
    """

    claim: str
    paper: Words
    value: Value
    rule: Rule
    why: Words = ""
    unit: str = ""
    elsewhere: Mapping[str, Value] = field(default_factory=dict)
    reach: Rule | Callable[[Results], Rule | None] | None = None
    whose: Whose = "paper"

    def judge(self, results: Results) -> list[Verdict]:
        """The verdict; none where its cases were not run, as in a quick run."""
        ours = self.value(results)
        if ours is None:
            return []
        others = {name: value(results) for name, value in self.elsewhere.items()}
        verdict = judged(
            claim=self.claim,
            paper=words(self.paper)(results),
            ours=ours,
            rule=self.rule,
            why=words(self.why)(results),
            unit=self.unit,
            elsewhere={name: found for name, found in others.items() if found is not None},
            reach=self.reach
            if isinstance(self.reach, Rule) or self.reach is None
            else self.reach(results),
            whose=self.whose,
        )
        return [verdict]


def each_judged(claims: Sequence[Claim]) -> Callable[[Results], list[Verdict]]:
    """The `judge` of a study whose claims are these rows."""
    return lambda results: [verdict for claim in claims for verdict in claim.judge(results)]


def ran(results: Results, **labels: Label) -> bool:
    """True if a row has these labels."""
    return any(all(row[name] == want for name, want in labels.items()) for row in results.rows)
