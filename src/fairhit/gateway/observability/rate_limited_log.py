"""Rate-limited log lines, for what may happen thousands of times a second."""

import logging

# Between two lines of one kind.
INTERVAL_S = 60.0


class RateLimitedLog:
    """Logs one kind of warning at once, and then at most once a minute, with the count since."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._logged_s = float("-inf")
        self._unlogged = 0

    def warning(self, now: float, text: str, *values: object) -> None:
        """Log or count one occurrence; `now` is in seconds of any one clock. O(1)."""
        self._unlogged += 1
        if now - self._logged_s < INTERVAL_S:
            return
        times = f" ({self._unlogged:,} times since the last line)" if self._unlogged > 1 else ""
        self._log.warning(text + "%s", *values, times)
        self._logged_s, self._unlogged = now, 0
