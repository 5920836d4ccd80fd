"""Engines that come and go while requests wait for them: who moves, and who has moved already."""

import asyncio

import pytest

from fairhit.core.request import Request
from fairhit.dispatch import (
    Dispatcher,
    LedgerSharing,
    LedgerUpdate,
    QueueRules,
    Ticket,
    TicketState,
)
from fairhit.gateway.http.engine_connection import Fault
from fairhit.gateway.pool.engine_pool import EnginePool
from fairhit.gateway.settings import GatewaySettings
from fairhit.routers.d2lpm import D2LPM
from fairhit.routers.prefix_index.approximate import ApproximatePrefixIndex, ChunkedText

A, B, C = "http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3"


def watched(**models: list[str]) -> tuple[Dispatcher, EnginePool]:
    """Engines at A, B... that are up and serve these."""
    dispatcher = Dispatcher(
        router=D2LPM(), index=ApproximatePrefixIndex(), rules=QueueRules(), on_ready=lambda _: None
    )
    workers = EnginePool(dispatcher=dispatcher, move=lambda _: None, settings=GatewaySettings())
    for name, served in models.items():
        url = {"a": A, "b": B, "c": C}[name]
        workers.add(url)
        come_up(workers, url, served)
    return dispatcher, workers


def come_up(workers: EnginePool, url: str, served: list[str]) -> None:
    """As after a good probe."""
    (watch,) = [watch for name, watch, _ in workers.watches() if name == url]
    watch.models = tuple({"id": name} for name in served)
    workers.on_up(watch)


def arrive(dispatcher: Dispatcher, order: int, model: str | None = None) -> Ticket:
    request = Request(
        id=str(order),
        client="a",
        prompt=ChunkedText().extended(b"%d" % order * 100).chunks,
        input_len=100,
        max_tokens=10,
        order=order,
    )
    return dispatcher.arrive(request, model=model, text_len=400)


def test_a_request_that_waits_for_any_engine_is_not_moved_when_one_is_lost() -> None:
    """The engine that rested takes requests again as the other goes, and takes the oldest that waits."""

    async def story() -> None:
        sent: list[Ticket] = []
        moved: list[Ticket] = []
        dispatcher = Dispatcher(
            router=D2LPM(),
            index=ApproximatePrefixIndex(),
            rules=QueueRules(max_engine_requests=1),
            on_ready=sent.append,
        )
        workers = EnginePool(
            dispatcher=dispatcher, move=moved.append, settings=GatewaySettings(worker_urls=(A, B))
        )
        for url in (A, B):
            workers.add(url)
            dispatcher.engine_up(url)
        for _ in range(10):
            workers.count_fault(B, Fault.STATUS)
        assert not dispatcher.engines[B].accepts
        under_way, waiting, newest = [arrive(dispatcher, order) for order in (1, 2, 3)]
        workers.mark_down(A)

        assert sent == [waiting]
        assert (waiting.worker, waiting.state) == (B, TicketState.WAITING)
        assert newest.state is TicketState.QUEUED
        assert moved == [under_way]
        await workers.close()

    asyncio.run(story())


@pytest.mark.parametrize("rules", [QueueRules(max_engine_requests=8), QueueRules(), None])
def test_an_engine_on_trial_gets_a_few_requests_and_not_a_window_of_them(
    rules: QueueRules | None,
) -> None:
    """Twenty wait for it, or come while it is tried: most of them would fail if it is still sick."""

    async def story() -> None:
        dispatcher = Dispatcher(
            router=D2LPM(), index=ApproximatePrefixIndex(), rules=rules, on_ready=lambda _: None
        )
        settings = GatewaySettings(worker_urls=(A, B), cb_success_threshold=3)
        workers = EnginePool(dispatcher=dispatcher, move=lambda _: None, settings=settings)
        for url in (A, B):
            workers.add(url)
            dispatcher.engine_up(url)
        for _ in range(10):
            workers.count_fault(B, Fault.STATUS)
        for order in range(20):
            arrive(dispatcher, order)
        assert not dispatcher.engines[B].tickets

        now = asyncio.get_running_loop().time() + settings.cb_timeout_duration_secs
        workers.tick(now)
        for order in range(20, 40):
            arrive(dispatcher, order)
        assert len(dispatcher.engines[B].tickets) == 3

        tried = sorted(dispatcher.engines[B].tickets, key=lambda ticket: ticket.request.order)
        for ticket in tried:
            dispatcher.finished(ticket, None, ran_us=1)
            workers.engine(B).breaker.succeeded()
        workers.tick(now)
        for order in range(40, 60):
            arrive(dispatcher, order)
        assert len(dispatcher.engines[B].tickets) > 3
        await workers.close()

    asyncio.run(story())


def test_the_only_engine_of_a_model_is_not_taken_out_though_another_shares_one_with_it() -> None:
    """The usual fleet of LoRA adapters: the base model everywhere, each adapter at one engine."""

    async def story() -> None:
        dispatcher, workers = watched(a=["base", "one"], b=["base", "two"])
        for _ in range(10):
            workers.count_fault(B, Fault.STATUS)
        assert workers.engine(B).breaker.phase.value == "open"
        assert arrive(dispatcher, 1, "two").worker == B

        workers.add(C)
        come_up(workers, C, ["two"])
        assert not dispatcher.engines[B].accepts
        assert arrive(dispatcher, 2, "two").worker == C
        assert arrive(dispatcher, 3, "base").worker == A
        await workers.close()

    asyncio.run(story())


def test_an_engine_is_not_taken_out_for_one_on_trial() -> None:
    async def story() -> None:
        dispatcher, workers = watched(a=["m"], b=["m"])
        for _ in range(10):
            workers.count_fault(A, Fault.STATUS)
        workers.tick(asyncio.get_running_loop().time() + 1000)
        assert dispatcher.engines[A].gate is not None
        for _ in range(10):
            workers.count_fault(B, Fault.STATUS)
        for order in range(10):
            arrive(dispatcher, order, "m")
        assert dispatcher.engines[B].accepts
        await workers.close()

    asyncio.run(story())


def test_one_of_several_engines_serves_until_the_one_that_replaces_it_does() -> None:
    async def story() -> None:
        dispatcher, workers = watched(a=["one"], b=["two"])
        workers.add(C)  # which replaces A in the settings, and is not up yet
        workers.drain_when_replaced(A)
        assert arrive(dispatcher, 1, "one").worker == A

        come_up(workers, C, ["one"])
        assert arrive(dispatcher, 2, "one").worker == C
        assert dispatcher.engines[B].accepts and not dispatcher.engines[A].accepts
        await workers.close()

    asyncio.run(story())


def test_an_engine_is_not_kept_for_a_model_that_no_other_will_serve() -> None:
    """A replacement with another model does not change that."""

    async def story() -> None:
        dispatcher, workers = watched(a=["one"], b=["two"])
        workers.drain_when_replaced(A)
        assert not dispatcher.engines[A].accepts

        workers.add(C)
        workers.drain_when_replaced(B)
        assert dispatcher.engines[B].accepts
        come_up(workers, C, ["three"])
        assert not dispatcher.engines[B].accepts
        await workers.close()

    asyncio.run(story())


def test_an_engine_drains_once_the_remaining_ones_serve_its_models() -> None:
    """A remaining engine that is down for a moment is waited for, if it serves a missing model."""

    async def story() -> None:
        dispatcher, workers = watched(a=["one", "two"], b=["one"], c=["two"])
        workers.mark_down(C)
        workers.drain_when_replaced(A)
        assert dispatcher.engines[A].accepts
        come_up(workers, C, ["two"])
        assert not dispatcher.engines[A].accepts
        assert arrive(dispatcher, 1, "two").worker == C
        await workers.close()

    asyncio.run(story())


def test_requests_for_a_draining_engine_are_served_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine had capacity, but a client of another gateway was next; no other engine has the model."""
    monkeypatch.setattr("fairhit.gateway.pool.engine_pool._DRAIN_INTERVAL_S", 0)

    async def story() -> None:
        sent: list[Ticket] = []
        dispatcher = Dispatcher(
            router=D2LPM(),
            index=ApproximatePrefixIndex(),
            rules=QueueRules(shared=True),
            on_ready=sent.append,
        )
        settings = GatewaySettings(disable_health_check=True)
        workers = EnginePool(dispatcher=dispatcher, move=lambda _: None, settings=settings)
        workers.add(A)
        dispatcher.engine_up(A)
        shared = LedgerSharing(dispatcher)
        news = LedgerUpdate(deficits={"a": -(10**12), "b": 10**12}, elsewhere={(): ("b",)})
        shared.adopt(news)
        waiting = arrive(dispatcher, 1)
        assert waiting.state is TicketState.QUEUED
        workers.drain(A)
        assert sent == [waiting]
        for _ in range(5):  # at each turn it looks whether all is done
            await asyncio.sleep(0)
        assert A in workers

        dispatcher.finished(waiting, None, ran_us=1)
        while A in workers:
            await asyncio.sleep(0)
        await workers.close()

    asyncio.run(story())


def test_what_sglang_has_evicted_is_asked_of_it_once_the_engine_that_lists_it_is_lost() -> None:
    async def story() -> None:
        dispatcher, workers = watched(a=["base", "one"], b=["base"])
        ((_, second, _),) = [each for each in workers.watches() if each[0] == B]
        second.evicted = frozenset(("one",))
        assert arrive(dispatcher, 1, "one").worker == A
        workers.mark_down(A)
        assert arrive(dispatcher, 2, "one").worker == B
        come_up(workers, A, ["base", "one"])
        assert dispatcher.engines[B].models == {"base"}
        workers.remove(A)
        assert arrive(dispatcher, 3, "one").worker == B
        await workers.close()

    asyncio.run(story())
