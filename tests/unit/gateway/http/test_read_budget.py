"""Bytes read per event loop iteration, and that deferred data keeps its order and its end."""

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import pytest

from fairhit.gateway.http.read_budget import (
    ITERATION,
    SHORT,
    STEP,
    BudgetedReads,
    ReadBudget,
    Steps,
)


def on_a_loop(story: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(story())

    run.__doc__, run.__name__ = story.__doc__, story.__name__
    return run


class Wire(asyncio.Transport):
    """A connection of which only the reading matters."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = True
        self.aborted = False

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True


@on_a_loop
async def test_a_turn_grants_so_many_bytes_and_the_next_as_many_again() -> None:
    budget = ReadBudget()
    for _ in range(3):
        assert [budget.take(STEP) for _ in range(5)] == [True] * 4 + [False]
        await asyncio.sleep(0)
        await asyncio.sleep(0)


@on_a_loop
async def test_what_waits_has_its_turn_in_order_and_before_what_comes() -> None:
    """Sixty-four connections with a read each: four a turn, and a health check between any two turns."""
    budget, ran = ReadBudget(), list[int]()
    for number in range(64):
        budget.run_later(STEP, lambda n=number: ran.append(n), owner=number)  # type: ignore[misc]
    lengths = []
    while len(ran) < 64:
        before = len(ran)
        await asyncio.sleep(0)
        lengths.append(len(ran) - before)
        assert not budget.take(1) or len(ran) == 64

    assert ran == list(range(64))
    assert max(lengths) == ITERATION // STEP


@on_a_loop
async def test_steps_run_in_turns_and_end_with_a_result_or_an_error() -> None:
    budget, ran = ReadBudget(), list[str]()

    def steps(name: str, *, fails: bool = False) -> Steps[str]:
        for _ in range(6):
            yield STEP
            ran.append(name)
        if fails:
            raise ValueError(name)
        return name.upper()

    a, b = budget.run(steps("a"), owner=0), budget.run(steps("b", fails=True), owner=0)
    assert await a == "A"
    with pytest.raises(ValueError, match="b"):
        await b
    assert ran == ["a", "b"] * 6


@on_a_loop
async def test_one_owner_with_many_steps_holds_up_no_other() -> None:
    """A hundred long bodies of one client: another's is read beside them, not behind them."""
    budget, ran = ReadBudget(), list[str]()

    def steps(name: str) -> Steps[None]:
        for _ in range(3):
            yield STEP
            ran.append(name)

    many = [budget.run(steps("many"), owner="many") for _ in range(100)]
    assert not budget.take(1), "what comes later would be read before what waits"
    await budget.run(steps("one"), owner="one")
    assert ran.count("many") <= 3 + 3 * ITERATION // STEP

    await asyncio.gather(*many)
    assert ran.count("many") == 300
    await asyncio.sleep(0)
    assert budget.take(1)


@on_a_loop
async def test_who_cancels_ends_the_steps() -> None:
    budget, ended = ReadBudget(), list[bool]()

    def steps() -> Steps[None]:
        try:
            while True:
                yield STEP
        finally:
            ended.append(True)

    future = budget.run(steps(), owner=0)
    await asyncio.sleep(0)
    future.cancel()
    for _ in range(3):
        await asyncio.sleep(0)

    assert ended == [True]


@on_a_loop
async def test_data_waits_with_its_connection_paused_and_keeps_its_order() -> None:
    """Short data behind long data waits, too, or an answer would be read in another order."""
    budget, read, wire = ReadBudget(), list[bytes](), Wire()
    reads = BudgetedReads(budget, read.append)
    reads.connected(wire)
    long, short = b"l" * STEP, b"s" * SHORT
    for _ in range(ITERATION // STEP):
        assert not reads.defer(long)
    assert wire.reads
    assert reads.defer(long)
    assert not wire.reads
    assert reads.defer(short)
    for _ in range(3):
        await asyncio.sleep(0)

    assert read == [long, short]
    assert wire.reads
    assert not reads.late


@on_a_loop
async def test_a_caller_that_reads_slowly_holds_its_engine_whatever_waits() -> None:
    budget, read, wire = ReadBudget(), list[bytes](), Wire()
    reads = BudgetedReads(budget, read.append)
    reads.connected(wire)
    reads.pause()
    while not reads.defer(b"x" * STEP):
        pass
    reads.pause()
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(read) == 1
    assert not wire.reads
    reads.resume()

    assert wire.reads


@pytest.mark.parametrize("hand_on", [True, False])
def test_a_connection_that_is_lost_leaves_nothing_waiting(hand_on: bool) -> None:
    """An engine's last bytes are passed on before the loss of its connection is."""

    async def story() -> None:
        budget, read = ReadBudget(), list[bytes]()
        reads = BudgetedReads(budget, read.append)
        reads.connected(Wire())
        while not reads.defer(b"x" * STEP):
            pass
        reads.close(pass_on=hand_on)
        assert len(read) == hand_on
        for _ in range(3):
            await asyncio.sleep(0)
        assert len(read) == hand_on

    asyncio.run(story())


@on_a_loop
async def test_a_bug_of_ours_closes_the_connection_it_was_met_on() -> None:
    budget, wire = ReadBudget(), Wire()

    def broken(data: bytes) -> None:
        raise RuntimeError(len(data))

    reads = BudgetedReads(budget, broken)
    reads.connected(wire)
    while not reads.defer(b"x" * STEP):
        pass
    for _ in range(3):
        await asyncio.sleep(0)

    assert wire.aborted


class Body:
    """A result that can be watched."""


def test_a_result_is_freed_with_its_future() -> None:
    """Not only when the garbage collector runs, which is seldom: until then every long body was kept."""

    async def work() -> None:
        def steps() -> Generator[int, None, Body]:
            yield 1
            yield 1
            return Body()

        future = ReadBudget().run(steps(), owner="a")
        freed = weakref.ref(await future)
        del future
        await asyncio.sleep(0)
        assert freed() is None

    gc.disable()
    try:
        asyncio.run(work())
    finally:
        gc.enable()
