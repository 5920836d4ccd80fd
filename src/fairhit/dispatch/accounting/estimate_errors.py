"""How far what a router assumed to be cached was from what the engine then reported."""

from bisect import bisect_left

from fairhit.core.request import WorkerId

# Upper bounds of the error, as shares of the prompt; what is above the last one is at most the prompt.
BOUNDS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


class EstimateError:
    """One worker's estimates of uncached tokens beside what it reported."""

    __slots__ = ("buckets", "over", "sum", "under")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS) + 1)  # requests whose error is in this one
        self.sum = 0.0  # of the errors, as shares of the prompts
        self.over = 0  # tokens that were to be computed by the estimate, and were cached
        self.under = 0  # tokens that were cached by the estimate, and had to be computed

    @property
    def count(self) -> int:
        """Requests compared. O(1)."""
        return sum(self.buckets)


class EstimateErrors:
    """The errors of each worker that reports what it had cached; `forget` those that are gone."""

    def __init__(self) -> None:
        self._errors: dict[WorkerId, EstimateError] = {}

    def compare(self, worker: WorkerId, *, estimated: int, reported: int, prompt_len: int) -> None:
        """`estimated` tokens of a prompt were thought uncached, and `reported` were. O(1)."""
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
        """`worker` is not expected back. O(1)."""
        self._errors.pop(worker, None)

    def of_each(self) -> dict[WorkerId, EstimateError]:
        """What was compared so far. O(workers)."""
        return dict(self._errors)
