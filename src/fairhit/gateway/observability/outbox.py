"""Log lines and spans on their way out: collected in memory, written by a thread once a second."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Outbox(Generic[T]):
    """Passes batches to `write`, which runs in a thread, one batch at a time, and may block.

    Meanwhile at most `most` items are kept; more are dropped and counted, because a full disk must not
    fill the memory, too.
    """

    def __init__(self, write: Callable[[list[T]], None], *, most: int = 100_000) -> None:
        assert most >= 1, most
        self.dropped = 0
        self._write = write
        self._most = most
        self._items: list[T] = []
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="outbox")
        self._writing: Future[None] | None = None
        self._failed = False

    def add(self, item: T) -> None:
        """Add an item. O(1): every request does."""
        if len(self._items) < self._most:
            self._items.append(item)
        else:
            self.dropped += 1

    def flush(self) -> None:
        """Start writing all items, unless the last batch is still being written."""
        if self._items and (self._writing is None or self._writing.done()):
            batch, self._items = self._items, []
            self._writing = self._pool.submit(self._deliver, batch)

    async def close(self) -> None:
        """Write the remaining items and end the thread."""
        if self._writing is not None:
            await asyncio.wrap_future(self._writing)
        self.flush()
        if self._writing is not None:
            await asyncio.wrap_future(self._writing)
        self._pool.shutdown(wait=False)

    def _deliver(self, batch: list[T]) -> None:
        try:
            self._write(batch)
            self._failed = False
        except Exception as error:  # noqa: BLE001 - requests are served whatever fails here
            self.dropped += len(batch)
            if not self._failed:
                _log.warning(
                    "%s: %s; what cannot be written is dropped", type(error).__name__, error
                )
            self._failed = True
