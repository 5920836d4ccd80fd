"""The prices that engines with the plug-in measured from their own passes, for the gateway's queue.

Each engine fits the times of its passes (core/engine_time.py) and exports the prices in force. The queue's
cost is their mean over the engines: a request is charged the same wherever it is sent. A policy takes them
after a refill and at no other time, and each moves by a factor of 2 at most.
"""

from collections.abc import Sequence

from fairhit.core.costs import ContextCost
from fairhit.core.engine_time import BOUNDS, PriceChanges, Prices, price_words, step_price
from fairhit.core.request import WorkerId
from fairhit.core.service import Cost

PARTS = tuple(BOUNDS)


class EnginePrices:
    """The prices that engines report, by engine, and their mean."""

    def __init__(self) -> None:
        self._by_engine: dict[WorkerId, Prices] = {}
        self.mean: Prices | None = None  # None: no engine reports any
        self._changes = PriceChanges()

    def report(self, name: WorkerId, prices: Prices | None, now_s: float = 0.0) -> bool:
        """Take the prices that an engine reports, None: it reports none. O(engines) if they changed.

        Returns whether to log that: if the engine now reports prices and did not before, or the reverse; or
        if the mean changed noticeably, at most once a minute of `now_s`.
        """
        before = self._by_engine.get(name)
        if prices == before:
            return False
        if prices is None:
            del self._by_engine[name]
        else:
            self._by_engine[name] = prices
        self.mean = _mean(list(self._by_engine.values()))
        is_notable = self.mean is not None and self._changes.is_notable(self.mean, now_s)
        return is_notable or (prices is None) != (before is None)

    def words(self) -> str:
        """Return the prices that the queue moves to, and where they are from, for a log line."""
        if self.mean is None:
            return "no engine reports prices; the last ones are kept"
        return f"{price_words(self.mean)}, as measured by engines: {len(self._by_engine)}"

    def cost(self, before: Cost) -> Cost:
        """Return the cost by the mean prices; `before` while no engine reports any. O(1)."""
        if self.mean is None:
            return before
        assert isinstance(before, ContextCost), before
        output, context, attention = self.mean
        return ContextCost(
            output=step_price("output", before.output, output),
            context=step_price("context", before.context, context),
            attention=step_price("attention", before.attention, attention),
            fitted=True,
        )


def _mean(reports: Sequence[Prices]) -> Prices | None:
    """Return the mean of each price; None without a report."""
    if not reports:
        return None
    output, context, attention = (sum(part) / len(reports) for part in zip(*reports, strict=True))
    return output, context, attention
