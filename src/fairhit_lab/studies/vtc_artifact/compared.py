"""One run of the VTC artifact, measured and simulated: the same numbers of both, and how far apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from fairhit.errors import ConfigError
from fairhit_lab.metrics.vtc_table import Row, VtcTable, served, table


@dataclass(frozen=True, kw_only=True, slots=True)
class RunNumbers:
    """What one run comes to: tokens/s, mean seconds to the first token, and the paper's table."""

    tokens_per_s: float
    ttft_s: float
    table: VtcTable


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """One run measured, simulated, and simulated again under jitter, once a seed."""

    name: str
    requests: int
    measured: RunNumbers
    simulated: RunNumbers
    jittered: list[RunNumbers]

    @property
    def throughput_error(self) -> float:
        """Simulated over measured, less 1."""
        return self.simulated.tokens_per_s / self.measured.tokens_per_s - 1

    @property
    def ttft_error(self) -> float:
        """Simulated over measured, less 1."""
        return self.simulated.ttft_s / self.measured.ttft_s - 1


def numbers_of(rows: Sequence[Row], run: str) -> RunNumbers:
    """Compute the numbers of a measured or of a simulated run, which `run` names.

    Raises ConfigError if no request was served.
    """
    kept = served(rows)
    if not kept:
        raise ConfigError(f"{run}: no request was served, so that there is nothing to compare")
    numbers = table(rows)
    return RunNumbers(
        tokens_per_s=numbers.throughput,
        ttft_s=fmean(row.first_token_s - row.arrival_s for row in kept),
        table=numbers,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """Absolute errors over all runs."""

    throughput_mean: float
    throughput_worst: float
    ttft_median: float
    ttft_worst: float


def agreement(comparisons: Sequence[Comparison]) -> Agreement:
    """How good the simulator is."""
    throughput = [abs(each.throughput_error) for each in comparisons]
    ttft = [abs(each.ttft_error) for each in comparisons]
    return Agreement(
        throughput_mean=fmean(throughput),
        throughput_worst=max(throughput),
        ttft_median=median(ttft),
        ttft_worst=max(ttft),
    )
