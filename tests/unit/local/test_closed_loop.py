"""Callers that are interrupted hang up, so that the service need not finish for nobody."""

import asyncio
import itertools

from fairhit.local.demo.closed_loop import ClosedLoop, Tenant


def test_interrupted_callers_hang_up():
    """Ctrl-C in the middle of a flood: a gateway finishes what is in flight, for half a minute."""

    async def story() -> int:
        asked, hung_up = asyncio.Semaphore(0), asyncio.Semaphore(0)

        async def never_answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            asked.release()
            await reader.read()
            hung_up.release()
            writer.close()

        server = await asyncio.start_server(never_answers, "127.0.0.1", 0)
        callers = Tenant(name="a", key="k", callers=3, bodies=lambda _: itertools.repeat(b"{}"))
        port = server.sockets[0].getsockname()[1]
        flood = asyncio.create_task(
            ClosedLoop(host="127.0.0.1", port=port, tenants=(callers,)).run(60)
        )
        for _ in range(3):
            await asyncio.wait_for(asked.acquire(), 10)
        flood.cancel()
        for _ in range(3):
            await asyncio.wait_for(hung_up.acquire(), 10)
        server.close()
        return 3

    assert asyncio.run(story()) == 3
