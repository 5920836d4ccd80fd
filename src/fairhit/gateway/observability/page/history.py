"""The last ten minutes, a line of JSON for each second: what the page and `fairhit top` show."""

from collections import deque
from collections.abc import Mapping
from itertools import islice

import orjson

# Ten minutes of seconds.
KEPT = 600


class Ring:
    """Samples, numbered from 1 on. Each is made JSON once, however often it is read."""

    def __init__(self, kept: int = KEPT) -> None:
        assert kept >= 1, kept
        self._lines: deque[bytes] = deque(maxlen=kept)
        self.last = 0  # the newest one's number

    def add(self, sample: Mapping[str, object]) -> None:
        """The newest; the oldest goes. O(sample)."""
        self.last += 1
        self._lines.append(orjson.dumps({"n": self.last, **sample}))

    def since(self, number: int) -> bytes:
        """Those after `number`, oldest first, as a JSON list. O(what it says)."""
        first = self.last - len(self._lines)
        lines = islice(self._lines, max(0, number - first), None)
        return b"[" + b",".join(lines) + b"]"
