"""Errors of the router's estimates of uncached tokens, by what engines report."""

from bisect import bisect_left

from fairhit.core.request import WorkerId

# Upper bounds of the histogram's buckets: the error as a share of the prompt. The last bucket has none.
BOUNDS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


class EstimateError:
    """Errors of the estimates for one worker."""

    __slots__ = ("buckets", "over", "sum", "under")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS) + 1)  # requests by size of the error
        self.sum = 0.0  # of the errors, as shares of the prompts
        self.over = 0  # tokens estimated uncached that were cached
        self.under = 0  # tokens estimated cached that were computed

    @property
    def count(self) -> int:
        """Requests compared. O(1)."""
        return sum(self.buckets)


class EstimateErrors:
    """The errors of each worker that reports its cached tokens."""

    def __init__(self) -> None:
        self._errors: dict[WorkerId, EstimateError] = {}

    def compare(self, worker: WorkerId, *, estimated: int, reported: int, prompt_len: int) -> None:
        """Compare the tokens `estimated` to be uncached with those `reported` to be computed. O(1)."""
        error = self._errors.get(worker)
        if error is None:
            error = self._errors[worker] = EstimateError()
        excess = estimated - reported
        share = min(1.0, abs(excess) / max(1, prompt_len))
        error.buckets[bisect_left(BOUNDS, share)] += 1
        error.sum += share
        if excess > 0:
            error.over += excess
        else:
            error.under -= excess

    def forget(self, worker: WorkerId) -> None:
        """Drop the errors of a worker that has been removed. O(1)."""
        self._errors.pop(worker, None)

    def of_each(self) -> dict[WorkerId, EstimateError]:
        """Return a copy of the table of errors. O(workers)."""
        return dict(self._errors)
