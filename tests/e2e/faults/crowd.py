"""Callers who ask one after the other until they are stopped."""

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator, Callable

from tests.e2e.faults.caller import HOST, Ask, fate_of
from tests.e2e.faults.census import Census

SYSTEM = "You are a patient assistant who answers in full sentences. " * 8
# A caller that was refused waits so long before it asks again, as the answer says.
_PAUSE_S = 0.05


def mixed(rng: random.Random, *, clients: int = 8, leavers: float = 0.05) -> Callable[[int], Ask]:
    """Plain and streamed, short and long; a few leave early."""

    def ask(number: int) -> Ask:
        return Ask(
            number=number,
            client=f"client-{rng.randrange(clients)}",
            text=SYSTEM[: rng.choice((0, 100, len(SYSTEM)))],
            max_tokens=rng.randrange(1, 9),
            stream=rng.random() < 0.5,
            leaves_after_s=rng.random() * 0.1 if rng.random() < leavers else None,
        )

    return ask


class Crowd:
    """So many callers of one port."""

    def __init__(self, port: int, make: Callable[[int], Ask], *, host: str = HOST) -> None:
        self._address = (host, port)
        self._make = make
        self._numbers = itertools.count()
        self.census = Census()
        self.stopped = False

    async def go_on(self) -> None:
        host, port = self._address
        while not self.stopped:
            result = await fate_of(self._make(next(self._numbers)), port, host=host)
            self.census.add(result)
            if result.status != 200:
                await asyncio.sleep(_PAUSE_S)

    async def until(self, condition: Callable[[Census], bool], *, within_s: float = 60) -> None:
        """Go on until the census says so."""
        async with asyncio.timeout(within_s):
            while not condition(self.census):
                await asyncio.sleep(0.01)

    async def more(self, answers: int, *, within_s: float = 60) -> None:
        """Go on until there are so many more requests that have ended."""
        enough = self.census.offered + answers
        await self.until(lambda census: census.offered >= enough, within_s=within_s)


@contextlib.asynccontextmanager
async def asking(
    port: int, make: Callable[[int], Ask], *, callers: int, host: str = HOST
) -> AsyncIterator[Crowd]:
    """A crowd at work; in the end each has its answer, and no caller asks again."""
    crowd = Crowd(port, make, host=host)
    tasks = [asyncio.ensure_future(crowd.go_on()) for _ in range(callers)]
    try:
        yield crowd
        crowd.stopped = True
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
