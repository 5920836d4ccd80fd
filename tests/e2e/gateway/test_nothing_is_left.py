"""A closed connection leaves no reference cycles, as the gateway collects garbage rarely."""

import gc
from collections import Counter

from fairhit.gateway.http.client_connection import ClientConnection
from fairhit.gateway.http.engine_connection import EngineConnection
from fairhit.gateway.http.request_parser import RequestParser
from tests.e2e.gateway.scripts import Received, chat, good
from tests.e2e.gateway.world import CHAT, World, eventually, play

CLOSED = (ClientConnection, RequestParser, EngineConnection)


def test_closed_connections_need_no_collector() -> None:
    """Callers with a connection for each request would otherwise have it hold megabytes of them."""

    async def closes(received: Received) -> None:
        await good(received)
        received.writer.close()

    def left() -> int:
        kinds = Counter(type(one) for one in gc.get_objects() if isinstance(one, CLOSED))
        return max(kinds.values(), default=0)

    async def story(world: World) -> None:
        gc.collect()
        gc.disable()
        try:
            for stream in (True, False):
                assert (await world.ask(body=chat(stream=stream))).status == 200
            too_large = await world.ask(CHAT, chat(user="x" * 2_000))
            no_json = await world.ask(CHAT, b"{")
            assert [too_large.status, no_json.status] == [413, 400]
            (await world.connect()).reset()
            await eventually(lambda: left() <= 1)  # the one that each second looked at last
        finally:
            gc.enable()

    play(story, closes, max_payload_size=1_000)
