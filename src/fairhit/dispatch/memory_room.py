"""Room in an engine's KV memory: whether one more prompt fits beside the requests that run.

The number of requests in flight says little about memory where prompts differ in length and share prefixes.
A prompt that does not fit would wait in the engine, bound to it before it could be served, in front of others
that are cached and would fit. So it is not sent, where the engine reports its memory.
"""

# Answers over which the length of the next one is expected, as their decaying mean.
_ANSWERS = 32
# Reports in a row that nothing waits in the engine, though a request was not sent for want of room. Then one
# is sent: what an engine reports may be wrong.
_MOST_REFUSALS = 120


class MemoryRoom:
    """Tokens of KV memory that an engine has left, as far as the gateway can tell between two reports.

    A request needs the prompt tokens that the engine must compute, and an answer of the usual length.
    """

    def __init__(self) -> None:
        self._answer_len = 0.0
        self._newest = 0  # number of the newest request that ran at the last new report
        self.restart()

    def restart(self) -> None:
        """Forget what the engine reported: it is down, or reports its load no longer. O(1)."""
        self._reported: int | None = None  # None: the engine does not report it
        self._free = 0
        self._refused = False  # a request was not sent since the last report
        self._refusals = 0  # such reports in a row

    @property
    def is_reported(self) -> bool:
        """True if the engine reports its memory."""
        return self._reported is not None

    def fits(self, extend_len: int) -> bool:
        """Return whether a request with so many prompt tokens to compute may be sent now. O(1)."""
        if self._reported is None or extend_len + self._answer_len <= self._free:
            return True
        if self._refusals >= _MOST_REFUSALS:
            self._refusals = 0
            return True
        self._refused = True
        return False

    def sent(self, extend_len: int) -> None:
        """Take the memory of a request that was sent, until the next report. O(1)."""
        self._free -= extend_len

    def ended(self, number: int, extend_len: int, output_len: int) -> None:
        """Return the memory of a request that ended, until the next report. O(1).

        Without its outputs if it did not run yet at the last report: they were never taken. Of one that ran
        all return, also those since the report.
        """
        self._answer_len += (output_len - self._answer_len) / _ANSWERS
        self._free += extend_len
        if number <= self._newest:
            self._free += output_len

    def reported(
        self, free_len: int | None, *, newest: int, pending_len: int, waiting: int
    ) -> None:
        """Set the tokens that running requests leave; None: the engine does not report them. O(1).

        `newest`: number of the newest request that runs; `pending_len`: prompt tokens to compute for requests
        that were sent and do not run yet; `waiting`: requests in the engine's queue. A `free_len` that is
        reported again is an old one: an engine renews it every few passes.
        """
        self._refusals = self._refusals + 1 if self._refused and not waiting else 0
        self._refused = False
        if free_len is not None and free_len != self._reported:
            self._free = free_len - pending_len
            self._newest = newest
        self._reported = free_len
