"""Work in threads, a piece for each client in turn: one with a thousand long prompts holds up no other's."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from fairhit.core.request import ClientId
from fairhit.gateway.http.round_robin import OwnerQueues

T = TypeVar("T")


class FairThreads:
    """A pool of `number` threads. Within a client's work the oldest comes first."""

    def __init__(self, number: int, *, name: str) -> None:
        self._pool = ThreadPoolExecutor(number, thread_name_prefix=name)
        self._free = number
        self._waiting: OwnerQueues[tuple[asyncio.Future[Any], Callable[[], Any]]] = OwnerQueues()

    def submit(self, client: ClientId, work: Callable[[], T]) -> "asyncio.Future[T]":
        """The result of `work`, when its turn has come. Cancelled before, it is not done. O(1)."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        item = (future, work)
        self._waiting.add(client, item)
        future.add_done_callback(lambda _: self._waiting.remove(client, item))
        self._begin()
        return future

    def close(self) -> None:
        """Give up what has not begun."""
        for future, _ in list(self._waiting):
            future.cancel()
        self._waiting = OwnerQueues()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _begin(self) -> None:
        """Begin as much as there are threads."""
        while self._free and self._waiting:
            future, work = self._waiting.pop()
            if future.done():
                continue
            try:
                running = asyncio.get_running_loop().run_in_executor(self._pool, work)
            except RuntimeError as error:  # there are no more threads
                future.set_exception(error)
                continue
            self._free -= 1
            running.add_done_callback(partial(self._done, future))

    def _done(self, future: "asyncio.Future[Any]", running: "asyncio.Future[Any]") -> None:
        self._free += 1
        if running.cancelled():
            future.cancel()
        elif (error := running.exception()) is not None:
            if not future.done():
                future.set_exception(error)
        elif not future.done():
            future.set_result(running.result())
        self._begin()
