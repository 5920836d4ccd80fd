"""Description of a trace: lengths, rates, clients, and the input that an unlimited cache would serve."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from fairhit.core.cache.radix_tree import RadixTree
from fairhit_lab.traces.fields import MICROSECONDS
from fairhit_lab.traces.trace import TraceRow


class Lengths:
    """Lengths in tokens and how often each came, so that quantiles are exact."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.total = 0  # tokens

    def add(self, length: int) -> None:
        """Add a length."""
        self.counts[length] += 1
        self.total += length

    @property
    def mean(self) -> float:
        """0 where there are none."""
        return self.total / max(1, self.counts.total())

    def quantile(self, level: float) -> int:
        """The smallest length that at least this share of lengths does not exceed."""
        wanted, passed = level * self.counts.total(), 0
        for length, count in sorted(self.counts.items()):
            passed += count
            if passed >= wanted:
                return length
        return 0

    def octaves(self) -> list[tuple[int, int, int]]:
        """(from, to, count) for lengths 1, 2-3, 4-7, 8-15 ..., from the shortest to the longest."""
        found: Counter[int] = Counter()
        for length, count in self.counts.items():
            found[length.bit_length()] += count
        if not found:
            return []
        return [
            (1 << bits - 1, (1 << bits) - 1, found[bits])
            for bits in range(min(found), max(found) + 1)
        ]

    def as_json(self) -> dict[str, Any]:
        """The figures and the histogram."""
        return {
            "mean": round(self.mean, 1),
            "p50": self.quantile(0.5),
            "p99": self.quantile(0.99),
            "min": min(self.counts, default=0),
            "max": max(self.counts, default=0),
            "total": self.total,
            "histogram": [list(octave) for octave in self.octaves()],
        }


@dataclass(kw_only=True, slots=True)
class Part:
    """Requests of one client, or of all. `cached` are input tokens that an earlier prompt contained."""

    requests: int = 0
    input: Lengths = field(default_factory=Lengths)
    output: Lengths = field(default_factory=Lengths)
    cached: int = 0
    weight: int | None = None

    def add(self, row: TraceRow, cached: int) -> None:
        """Add a request."""
        self.requests += 1
        self.input.add(len(row.prompt))
        self.output.add(row.output_len)
        self.cached += cached
        self.weight = self.weight if row.weight is None else row.weight

    @property
    def service(self) -> int:
        """Requested service in the client view: input + 2 * output, in tokens."""
        return self.input.total + 2 * self.output.total

    @property
    def prefix_share(self) -> float:
        """The share of its input tokens in the longest prefix seen before."""
        return self.cached / max(1, self.input.total)


class ArrivalGaps:
    """Mean and variance of the time between arrivals, as they come (Welford)."""

    def __init__(self) -> None:
        self._count, self._mean, self._squares = 0, 0.0, 0.0

    def add(self, gap_us: int) -> None:
        """Add a gap."""
        self._count += 1
        off = gap_us - self._mean
        self._mean += off / self._count
        self._squares += off * (gap_us - self._mean)

    @property
    def cv(self) -> float:
        """Standard deviation over mean: 0 evenly spaced, 1 Poisson, more in bursts."""
        return math.sqrt(self._squares / self._count) / self._mean if self._mean else 0.0


@dataclass(kw_only=True, slots=True)
class Description:
    """A trace in figures; `prefix_known` tells whether the prefix share was looked for."""

    all: Part = field(default_factory=Part)
    clients: dict[str, Part] = field(default_factory=dict)
    programs: int = 0
    dependent: int = 0
    cancelled: int = 0
    first_us: int = 0
    last_us: int = 0
    gaps: ArrivalGaps = field(default_factory=ArrivalGaps)
    prefix_known: bool = True

    @property
    def duration_s(self) -> float:
        """From the first arrival to the last."""
        return (self.last_us - self.first_us) / MICROSECONDS

    def rate(self, part: Part) -> float:
        """Requests a second; of a trace that lasts no time, 0."""
        return part.requests / self.duration_s if self.duration_s else 0.0

    def by_service(self) -> list[tuple[str, Part]]:
        """Parts by requested service, the largest first; ties in order of appearance."""
        return sorted(self.clients.items(), key=lambda pair: -pair[1].service)

    def as_json(self) -> dict[str, Any]:
        """The description as a JSON object."""
        return {
            "requests": self.all.requests,
            "clients": len(self.clients),
            "programs": self.programs,
            "with_parents": self.dependent,
            "cancelled": self.cancelled,
            "duration_s": round(self.duration_s, 6),
            "rate_per_s": round(self.rate(self.all), 4),
            "arrival_cv": round(self.gaps.cv, 3),
            "prefix_share": self._share(self.all),
            "input_tokens": self.all.input.as_json(),
            "output_tokens": self.all.output.as_json(),
            "per_client": [self._client(name, part) for name, part in self.by_service()],
        }

    def _client(self, name: str, part: Part) -> dict[str, Any]:
        return {
            "client": name,
            "requests": part.requests,
            "rate_per_s": round(self.rate(part), 4),
            "service_share": round(part.service / max(1, self.all.service), 4),
            "input_mean": round(part.input.mean, 1),
            "output_mean": round(part.output.mean, 1),
            "prefix_share": self._share(part),
            "weight": 1 if part.weight is None else part.weight / MICROSECONDS,
        }

    def _share(self, part: Part) -> float | None:
        return round(part.prefix_share, 4) if self.prefix_known else None


def describe(rows: Iterable[TraceRow], *, prefixes: bool = True) -> Description:
    """Read them all. With `prefixes` every prompt's runs are held, else only counts.

    An output, where the trace says what it is, is cached behind its prompt from its row on.
    """
    found = Description(prefix_known=prefixes)
    tree = RadixTree() if prefixes else None
    programs: set[str] = set()
    for row in rows:
        if found.all.requests:
            found.gaps.add(row.arrival_us - found.last_us)
        else:
            found.first_us = row.arrival_us
        found.last_us = row.arrival_us
        cached = _cached(tree, row) if tree is not None else 0
        found.all.add(row, cached)
        found.clients.setdefault(row.client, Part()).add(row, cached)
        if row.program is not None:
            programs.add(row.program)
        found.dependent += bool(row.after)
        found.cancelled += row.cancel_us is not None
    found.programs = len(programs)
    return found


def _cached(tree: RadixTree, row: TraceRow) -> int:
    """Length of the prompt's prefix in the tree, to which the prompt is added. O(runs)."""
    whole = row.prompt if row.output is None else row.prompt + row.output
    path = tree.acquire(row.prompt, 0)
    cached = path.length
    tree.insert(path, whole, 0)
    return cached
