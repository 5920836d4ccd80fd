"""A line of the log for what may happen thousands of times a second."""

import logging

# Between two lines about the same.
INTERVAL_S = 60.0


class Rarely:
    """Says one thing at once, and then at most once a minute, with how often it has happened since."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._said_s = float("-inf")
        self._unsaid = 0

    def warning(self, now: float, text: str, *values: object) -> None:
        """It has happened; times are seconds of any one clock. O(1)."""
        self._unsaid += 1
        if now - self._said_s < INTERVAL_S:
            return
        times = f" ({self._unsaid:,} times since this was last said)" if self._unsaid > 1 else ""
        self._log.warning(text + "%s", *values, times)
        self._said_s, self._unsaid = now, 0
