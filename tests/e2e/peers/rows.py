"""What the tests of routers' behaviours share: engines that fail or sleep, and who was asked."""

import asyncio
import json
from collections import Counter

from tests.e2e.gateway.scripts import Received, Script, good, whole
from tests.e2e.gateway.world import World

COMPLETIONS = "/v1/completions"
KEY = "x_smg_routing_key"
QUICK = {"retry_initial_backoff_ms": 1, "retry_max_backoff_ms": 2}


def prompt(text: str, **fields: object) -> bytes:
    return json.dumps({"model": "m", "prompt": text, "max_tokens": 1, **fields}).encode()


def fails(times: int, status: int = 500) -> Script:
    """Answers the first `times` requests with an error, and the others as it should."""
    left = [times]

    async def script(received: Received) -> None:
        left[0] -= 1
        if left[0] >= 0:
            whole(received, status, b'{"error":{"message":"mock"}}')
        else:
            await good(received)

    return script


def slow(seconds: float) -> Script:
    async def script(received: Received) -> None:
        await asyncio.sleep(seconds)
        await good(received)

    return script


async def statuses(world: World, count: int) -> list[int]:
    return [(await world.ask()).status for _ in range(count)]


async def together(world: World, count: int) -> Counter[int]:
    """The statuses of so many requests at once."""
    replies = await asyncio.gather(*(world.ask() for _ in range(count)))
    return Counter(reply.status for reply in replies)


def shares(world: World) -> list[int]:
    """How many requests each engine was sent."""
    return [len(engine.received) for engine in world.engines]


async def home_of(world: World, key: str) -> int:
    """The engine that a request with this routing key goes to."""
    before = shares(world)
    assert (await world.ask(**{KEY: key})).status == 200
    (home,) = [at for at, sent in enumerate(shares(world)) if sent > before[at]]
    return home
