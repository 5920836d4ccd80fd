"""Durations of the forward passes of an engine, and the client that each second goes to."""

from collections.abc import Mapping

from fairhit.core.costs import ENGINE
from fairhit.core.engine_time import PassTimeFit, PassWork
from fairhit.core.request import ClientId
from fairhit.core.service import Cost


class PassMeter:
    """Reports passes to the policy's fit, if it has one, and divides their durations by a fit of its own.

    Of its own, since the policy takes new prices at refills only, and a pinned cost has no fit.
    """

    def __init__(self, fit: PassTimeFit | None) -> None:
        self._of_policy = fit
        self._fit = PassTimeFit()
        self.measured: Cost = ENGINE  # what the passes seen so far say a request costs

    def observe(self, works: Mapping[ClientId, PassWork], seconds: float) -> dict[ClientId, float]:
        """Add a pass; return each client's part of its duration. O(clients in the pass)."""
        work = PassWork()
        for each in works.values():
            work.extend += each.extend
            work.attention += each.attention
            work.decodes += each.decodes
            work.context += each.context
        if not work.extend + work.decodes:
            return {}
        # A pass that no clock can measure counts as any other: the ranks of an engine must agree on how
        # many they have seen.
        seconds = max(seconds, 1e-9)
        if self._of_policy is not None:
            self._of_policy.observe(work, seconds)
        self._fit.observe(work, seconds)
        self.measured = self._fit.cost(self.measured)
        return self._fit.shares(works, seconds)
