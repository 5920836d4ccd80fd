"""A thread pool that serves clients round-robin: many long prompts of one client delay no other client."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from fairhit.core.request import ClientId
from fairhit.gateway.http.round_robin import OwnerQueues

T = TypeVar("T")


class FairThreads:
    """A pool of `number` threads; work of one client is done in order of arrival."""

    def __init__(self, number: int, *, name: str) -> None:
        self._pool = ThreadPoolExecutor(number, thread_name_prefix=name)
        self._free = number
        self._waiting = OwnerQueues[tuple[asyncio.Future[Any], Callable[[], Any]]]()

    def submit(self, client: ClientId, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Future of `work`'s result. Cancelling it before the work has begun skips the work. O(1)."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        job = future, work
        self._waiting.add(client, job)
        future.add_done_callback(lambda _: self._waiting.remove(client, job))
        self._begin()
        return future

    def close(self) -> None:
        """Cancel all work that has not begun."""
        for future, _ in list(self._waiting):
            future.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _begin(self) -> None:
        """Give waiting work to free threads."""
        while self._free and self._waiting:
            future, work = self._waiting.pop()
            if future.done():
                continue
            try:
                running = asyncio.get_running_loop().run_in_executor(self._pool, work)
            except RuntimeError as error:  # no thread can be started
                future.set_exception(error)
                continue
            self._free -= 1
            running.add_done_callback(partial(self._finish, future))

    def _finish(self, future: "asyncio.Future[Any]", running: "asyncio.Future[Any]") -> None:
        self._free += 1
        if running.cancelled():
            future.cancel()
        elif (error := running.exception()) is not None:
            if not future.done():
                future.set_exception(error)
        elif not future.done():
            future.set_result(running.result())
        self._begin()
