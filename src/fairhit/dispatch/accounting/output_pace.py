"""Output pace: the time an engine takes per output token, learnt from the answers it gave in full."""

from typing import Final

# Before the first answers: a small model on a fast GPU. Until an engine has answered, a client that
# cancels at a slower engine is charged more than it received; a slower default would undercharge.
_FIRST_US: Final = 5_000
# An answer moves the estimate by 1/8 of the difference if it was faster, by 1/64 if it was slower: the
# time from sending to the end includes queueing and prefill, which only lengthen it.
_FASTER: Final = 8
_SLOWER: Final = 64
# An answer of fewer outputs moves the estimate up by proportionally less: most of its time is queueing
# and prefill, and a client could send many of them to make the pace seem slow.
_FULL: Final = 64
# One slow answer counts as at most this many times the estimate.
_MOST: Final = 2


class OutputPace:
    """The estimated time between two outputs, biased to the fastest answers seen."""

    __slots__ = ("us",)

    def __init__(self) -> None:
        self.us = _FIRST_US

    def learn(self, *, ran_us: int, outputs: int) -> None:
        """Update the estimate by an answer of `outputs` tokens that took `ran_us`. O(1)."""
        if outputs < 1:
            return
        us = ran_us // outputs
        if us < self.us:
            self.us = max(1, self.us - -(-(self.us - us) // _FASTER))
        else:
            more = (min(us, _MOST * self.us) - self.us) * min(outputs, _FULL) // _FULL
            self.us += -(-more // _SLOWER)

    def outputs(self, ran_us: int) -> int:
        """Return how many outputs an answer can have after `ran_us`. Pure. O(1)."""
        return ran_us // self.us
