"""How long an engine takes from one output to the next, learnt from the answers it gave in full."""

from typing import Final

# Before the first answers: as fast as engines are, a small model on a fast GPU. Until they have come,
# who leaves an engine that is slower pays more than it got; the other way round it would be for nothing.
_FIRST_US: Final = 5_000
# An answer moves the estimate by 1/8 of the difference if it was faster, by 1/64 if it was slower: the
# time from being asked to the end has waits and the prompt in it, which only ever lengthen it.
_FASTER: Final = 8
_SLOWER: Final = 64
# An answer of fewer outputs moves it up by less in proportion: of such a one most is waits and prompt, and
# a client that wants the pace to be slow would send many.
_FULL: Final = 64
# One slow answer counts as so many times the estimate, at most.
_MOST: Final = 2


class OutputPace:
    """The time between two outputs of an answer, leaning to the fastest answers seen."""

    __slots__ = ("us",)

    def __init__(self) -> None:
        self.us = _FIRST_US

    def learn(self, *, ran_us: int, outputs: int) -> None:
        """An answer of so many outputs, one after the other, came this long after it was asked for. O(1)."""
        if outputs < 1:
            return
        us = ran_us // outputs
        if us < self.us:
            self.us = max(1, self.us - -(-(self.us - us) // _FASTER))
        else:
            more = (min(us, _MOST * self.us) - self.us) * min(outputs, _FULL) // _FULL
            self.us += -(-more // _SLOWER)

    def outputs(self, ran_us: int) -> int:
        """How many outputs an answer can have after so long. Pure. O(1)."""
        return ran_us // self.us
