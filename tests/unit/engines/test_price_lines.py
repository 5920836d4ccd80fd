"""What an engine's log says of its prices."""

import pytest

pytest.importorskip("prometheus_client")

from fairhit.core.costs import ENGINE, ContextCost
from fairhit.core.service import UNITS_PER_TOKEN, Cost, TokenCost
from fairhit.engines import client_metrics
from fairhit.engines.client_metrics import ClientMetrics, EngineTotals


def lines_of(costs: list[Cost], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines of an engine whose cost in force is each of `costs` for two minutes; metrics are off."""
    monkeypatch.delenv(client_metrics.MULTIPROC_DIR, raising=False)
    minutes = iter(range(0, 1000, 2))
    monkeypatch.setattr(client_metrics.time, "monotonic", lambda: 60.0 * next(minutes))
    lines: list[str] = []
    in_force = [costs[0]]
    metrics = ClientMetrics(
        waiting=lambda _: 0,
        deficit=lambda _: 0.0,
        totals=lambda: EngineTotals(0, 0, 0),
        cost=lambda: in_force[0],
        notify=lines.append,
    )
    for in_force[0] in costs:
        metrics.flush(is_idle=False)
    return lines


def test_an_engine_logs_the_first_prices_that_it_fitted_and_each_noticeable_change(monkeypatch):
    first = ContextCost(output=3 * UNITS_PER_TOKEN, context=200_000, fitted=True)
    nearly = ContextCost(output=4 * UNITS_PER_TOKEN, context=200_000, fitted=True)
    other = ContextCost(output=3 * UNITS_PER_TOKEN, context=400_000, fitted=True)

    assert lines_of([ENGINE, ENGINE, first, first, nearly, other], monkeypatch) == [
        "prices in force: output 3, context 0.002, attention 0 tokens",
        "prices in force: output 3, context 0.004, attention 0 tokens",
    ]


@pytest.mark.parametrize("cost", [TokenCost(), ContextCost(context=5)])
def test_a_cost_that_follows_no_passes_is_named_at_the_start_only(cost, monkeypatch):
    assert lines_of([cost, cost], monkeypatch) == []
