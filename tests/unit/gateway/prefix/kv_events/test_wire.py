"""Messages are read while requests are served on the same loop."""

import asyncio
import os
from itertools import count, pairwise
from typing import Any

import pytest

from fairhit.gateway.prefix.kv_events import wire
from fairhit.gateway.prefix.kv_events.wire import Wire


class Flood:
    """A socket that always has one more message."""

    closed = False

    def __init__(self) -> None:
        self._ends = os.pipe()

    def fileno(self) -> int:
        return self._ends[0]

    def recv_multipart(self, flags: int) -> list[bytes]:
        return [b"more"]

    def close(self, linger: int) -> None:
        self.closed = True
        for end in self._ends:
            os.close(end)


def test_a_flood_of_messages_leaves_time_for_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message takes 0.4 ms: after the third a millisecond has passed, and the loop continues."""
    clock = (0.0004 * number for number in count())
    monkeypatch.setattr(wire, "monotonic", lambda: next(clock))
    read: list[object] = []
    between: list[int] = []

    async def story() -> None:
        flood: Any = Flood()
        reader = Wire(flood, read.append)
        for _ in range(5):
            await asyncio.sleep(0)
            between.append(len(read))
        reader.close()

    asyncio.run(story())

    assert [after - before for before, after in pairwise(between)] == [3] * 4
