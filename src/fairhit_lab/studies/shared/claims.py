"""Claims as rows of a study, and the one rule by which each is judged over the seeds and other settings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, nextafter

from fairhit_lab.studies.shared.results import Interval, Label, Results
from fairhit_lab.studies.shared.study import Verdict


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
    """The verdict on a claim: it holds if `ours` keeps the rule in every seed, and in the median elsewhere.

    `elsewhere` has the same number by setting. The verdict names the settings that break the rule, and
    those that keep it where the stated setting breaks it; a setting without a value is not judged. A
    claim without a value of ours is "not comparable". `why` explains a verdict other than "holds".
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
        also = f"; not {_listed(fails)}" if fails else ""
        reason = f"in the median, not for every seed{also}; {reason}"
    elif fits:
        reason = f"{_listed(fits)}; not {_listed(['as stated', *fails])}; {reason}"
    else:
        return Verdict(claim=claim, paper=paper, ours=shown, holds="does not hold", why=reason)
    return Verdict(claim=claim, paper=paper, ours=shown, holds="holds only if", why=reason)


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
    """

    claim: str
    paper: Words
    value: Value
    rule: Rule
    why: Words = ""
    unit: str = ""
    elsewhere: Mapping[str, Value] = field(default_factory=dict)

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
        )
        return [verdict]


def each_judged(claims: Sequence[Claim]) -> Callable[[Results], list[Verdict]]:
    """The `judge` of a study whose claims are these rows."""
    return lambda results: [verdict for claim in claims for verdict in claim.judge(results)]


def ran(results: Results, **labels: Label) -> bool:
    """True if a row has these labels."""
    return any(all(row[name] == want for name, want in labels.items()) for row in results.rows)
