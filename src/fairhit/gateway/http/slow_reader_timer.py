"""An answer that its caller does not read, or reads so slowly that nobody could want it."""

# Bytes that have to go out for the time to begin anew: a byte now and then is no reading.
_LEAST = 16 << 10


class Unread:
    """How long a caller has read as good as nothing."""

    __slots__ = ("_left", "_since")

    def __init__(self) -> None:
        self._left = -1  # bytes that waited for it when the time began
        self._since = 0.0

    def forget(self) -> None:
        """It has caught up."""
        self._left = -1

    def for_s(self, left: int, now: float) -> float:
        """How long it has been so, where `left` bytes wait for it now."""
        if self._left < 0 or self._left - left >= _LEAST:
            self._left, self._since = left, now
        return now - self._since
