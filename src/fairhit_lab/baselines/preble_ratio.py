"""Preble by a ratio of the prompt: to the longest match if that is enough of it, else by load alone.

So the DLPM paper describes it (arXiv:2501.14312v1, section 6.1: "a pre-defined prefix-matching ratio"),
without the ratio's value; half of the prompt is where Preble's own E2 begins to exploit. Nothing of E2's
costs and balancing is in it: `preble` has them.
"""

from collections.abc import Collection

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.request import Request, WorkerId
from fairhit.routers.least_loaded import LeastLoaded


class PrebleRatio(LeastLoaded):
    """Of the workers with the longest match, if it is half of the prompt, else of all: the least loaded."""

    def route(
        self,
        request: Request,
        *,
        matches: PrefixMatches,
        candidates: Collection[WorkerId] | None = None,
    ) -> WorkerId:
        """Choose a worker. O(match lengths), and as `LoadOrder.least`."""
        for length, holders in matches.by_length:
            if 2 * length < request.input_len:
                break
            chosen = self.load.order.least(among=holders, candidates=candidates)
            if chosen is not None:
                return chosen
        return super().route(request, matches=matches, candidates=candidates)
