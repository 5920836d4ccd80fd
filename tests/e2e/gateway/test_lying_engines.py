"""Engines that lie about where their answers end: a caller gets its own answer, whole, or an error.

After every lie another caller asks the same engine: what it gets must be its own.
"""

import asyncio

from tests.e2e.gateway.scripts import Received, chat, whole
from tests.e2e.gateway.world import World, play
from tests.wire.answers import ROWS, TEXT, Row

OTHER = b'{"choices":[],"mine":true}'


async def lie(received: Received) -> None:
    """The row that the request names; an honest answer where it names none."""
    number = received.json().get("seed")
    if number is None:
        whole(received, 200, OTHER)
        return
    row = ROWS[number]
    for piece in row.pieces:
        received.writer.write(piece)
        await asyncio.sleep(0.002)
    if row.closes:
        received.writer.close()


async def judged(world: World, row: Row, number: int) -> list[str]:
    lied = await world.ask(body=chat(seed=number))
    honest = await asyncio.gather(*(world.ask(body=chat()) for _ in range(3)))
    expected = (200, TEXT) if row.passes else (502, None)
    got = (lied.status, lied.body if lied.status == 200 else None)
    wrong = [] if got == expected else [f"{row.name}: expected {expected}, got {got}"]
    for reply in honest:
        if (reply.status, reply.body) != (200, OTHER):
            wrong.append(f"{row.name}: another caller got {reply.status} {reply.body!r}")
    return wrong


def test_what_an_engine_says_too_much_reaches_no_caller() -> None:
    """Several times, so that the engine's usual opening is known and its parser left out."""

    async def story(world: World) -> None:
        wrong = []
        for number, row in enumerate(ROWS):
            wrong += await judged(world, row, number)
        assert wrong == []

    play(story, lie, disable_circuit_breaker=True, disable_retries=True)
