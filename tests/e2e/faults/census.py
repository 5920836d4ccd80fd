"""What became of each request: each caller is given an answer, or is counted lost."""

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

_KEPT = 5  # of the losses, with what was seen


class Fate(Enum):
    """How a request ended, for its caller."""

    ANSWERED = "answered"  # whole, and its own
    REFUSED = "refused"  # an error that says why, and that nothing was done
    FAILED = "failed"  # an error that says so, perhaps after a part of the answer
    LEFT = "left"  # the caller wanted no more
    # Of these there may be none while the gateway lives.
    UNREACHED = "unreached"  # no process listened
    CUT = "cut"  # the connection ended, and nothing said why
    SILENT = "silent"  # neither answer nor error for as long as the caller was patient
    WRONG = "wrong"  # another's answer, or no HTTP


LOST = (Fate.UNREACHED, Fate.CUT, Fate.SILENT, Fate.WRONG)
# Statuses with which nothing was done; any other error is a failure.
_REFUSALS = frozenset((400, 401, 404, 405, 408, 413, 429, 431, 503))


@dataclass(frozen=True)
class Result:
    """One request's end, and what was seen of it."""

    fate: Fate
    status: int = 0
    seen: str = ""


def error_result(status: int) -> Result:
    """An answer that is an error, in the shape errors have."""
    return Result(Fate.REFUSED if status in _REFUSALS else Fate.FAILED, status)


@dataclass
class Census:
    """All requests of a story."""

    fates: Counter[Fate] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    losses: list[Result] = field(default_factory=list)

    def add(self, result: Result) -> None:
        self.fates[result.fate] += 1
        self.statuses[result.status] += 1
        if result.fate in LOST and result.seen and len(self.losses) < _KEPT:
            self.losses.append(result)

    @property
    def offered(self) -> int:
        return self.fates.total()

    def __getitem__(self, fate: Fate) -> int:
        return self.fates[fate]

    @property
    def lost(self) -> int:
        return sum(self.fates[fate] for fate in LOST)

    def row(self) -> dict[str, int]:
        """Offered, and each fate, by name."""
        return {"offered": self.offered, **{fate.value: self.fates[fate] for fate in Fate}}

    def __str__(self) -> str:
        numbers = ", ".join(f"{number} {name}" for name, number in self.row().items() if number)
        seen = f"; {self.losses}" if self.losses else ""
        return f"{numbers}; by status {dict(sorted(self.statuses.items()))}{seen}"
