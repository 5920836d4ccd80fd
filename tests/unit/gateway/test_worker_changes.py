"""Engines that come and go while requests wait for them: who moves, and who has moved already."""

import asyncio

import pytest

from fairlead.core.chunk_index import ChunkedText, ChunkIndex
from fairlead.core.request import Request
from fairlead.dispatch import Dispatcher, QueueRules, State, Ticket
from fairlead.gateway.settings import GatewaySettings
from fairlead.gateway.upstream import Fault
from fairlead.gateway.workers import Workers
from fairlead.routers.d2lpm import D2LPM

A, B = "http://127.0.0.1:1", "http://127.0.0.1:2"


def arrive(dispatcher: Dispatcher, order: int) -> Ticket:
    request = Request(
        id=str(order),
        client="a",
        prompt=ChunkedText().extended(b"%d" % order * 100).chunks,
        input_len=100,
        max_tokens=10,
        order=order,
    )
    return dispatcher.arrive(request, model=None, text_len=400)


def test_what_another_engine_took_meanwhile_is_not_moved() -> None:
    """The engine that rested takes requests again as the other goes, and fills itself from its queue."""

    async def story() -> None:
        sent: list[Ticket] = []
        moved: list[Ticket] = []
        dispatcher = Dispatcher(
            router=D2LPM(), index=ChunkIndex(), rules=QueueRules(window=1), on_ready=sent.append
        )
        workers = Workers(
            dispatcher=dispatcher, move=moved.append, settings=GatewaySettings(worker_urls=(A, B))
        )
        for url in (A, B):
            workers.add(url)
            dispatcher.worker_up(url)
        for _ in range(10):
            workers.failing(B, Fault.STATUS)
        assert not dispatcher.workers[B].takes
        under_way, waiting, newest = [arrive(dispatcher, order) for order in (1, 2, 3)]
        workers.lost(A)

        assert sent == [newest]
        assert (newest.worker, newest.state) == (B, State.WAITING)
        assert moved == [under_way, waiting]
        await workers.close()

    asyncio.run(story())


@pytest.mark.parametrize("rules", [QueueRules(window=8), QueueRules(), None])
def test_an_engine_on_trial_gets_a_few_requests_and_not_a_window_of_them(
    rules: QueueRules | None,
) -> None:
    """Twenty wait for it, or come while it is tried: most of them would fail if it is still sick."""

    async def story() -> None:
        dispatcher = Dispatcher(
            router=D2LPM(), index=ChunkIndex(), rules=rules, on_ready=lambda _: None
        )
        settings = GatewaySettings(worker_urls=(A, B), cb_success_threshold=3)
        workers = Workers(dispatcher=dispatcher, move=lambda _: None, settings=settings)
        for url in (A, B):
            workers.add(url)
            dispatcher.worker_up(url)
        for _ in range(10):
            workers.failing(B, Fault.STATUS)
        for order in range(20):
            arrive(dispatcher, order)
        assert not dispatcher.workers[B].tickets

        now = asyncio.get_running_loop().time() + settings.cb_timeout_duration_secs
        workers.tick(now)
        for order in range(20, 40):
            arrive(dispatcher, order)
        assert len(dispatcher.workers[B].tickets) == 3

        tried = sorted(dispatcher.workers[B].tickets, key=lambda ticket: ticket.request.order)
        for ticket in tried:
            dispatcher.finished(ticket, None)
            workers.engine(B).breaker.succeeded()
        workers.tick(now)
        for order in range(40, 60):
            arrive(dispatcher, order)
        assert len(dispatcher.workers[B].tickets) > 3
        await workers.close()

    asyncio.run(story())
