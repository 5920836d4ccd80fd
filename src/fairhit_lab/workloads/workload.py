"""A named workload: a function, its defaults, and its source."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from fairhit_lab.traces.parameters import WorkloadSetting, settings_of
from fairhit_lab.traces.trace import TraceRow


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A generator of rows, sorted by arrival.

    `make` takes a random generator and its keyword settings; `defaults` are those that this workload
    changes. `source` is a figure or section of a paper.
    """

    summary: str
    source: str
    make: Callable[..., Iterator[TraceRow]]
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def settings(self) -> dict[str, WorkloadSetting]:
        """Settings, with this workload's defaults."""
        of_function = settings_of(self.make)
        assert self.defaults.keys() <= of_function.keys(), self.defaults
        return {
            name: replace(setting, default=self.defaults.get(name, setting.default))
            for name, setting in of_function.items()
        }

    def rows(self, rng: Random, **settings: Any) -> Iterator[TraceRow]:
        """Requests by arrival: the same generator state and settings give the same rows."""
        return self.make(rng, **{**self.defaults, **settings})


def preset(
    make: Callable[..., Iterator[TraceRow]], summary: str, source: str, **defaults: Any
) -> Workload:
    """A row of a table of workloads."""
    return Workload(summary=summary, source=source, make=make, defaults=defaults)
