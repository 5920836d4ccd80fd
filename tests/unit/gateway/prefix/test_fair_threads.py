"""Work in threads by turns of the clients."""

import asyncio
import threading

from fairhit.gateway.prefix.fair_threads import FairThreads


def test_one_clients_heap_of_work_holds_up_no_other_client() -> None:
    """One thread, a hundred long prompts of one client, then one of another: it is the next but one."""
    began: list[str] = []
    gate = threading.Event()

    async def story() -> None:
        threads = FairThreads(1, name="test")

        def work(name: str) -> None:
            began.append(name)
            assert gate.wait(30)

        heavy = [threads.submit("heavy", lambda n=n: work(f"heavy {n}")) for n in range(100)]
        light = threads.submit("light", lambda: work("light"))
        for one in heavy[50:]:
            one.cancel()
        gate.set()
        await light
        await asyncio.gather(*heavy[:50])
        assert not threads._waiting
        threads.close()

    asyncio.run(story())
    assert began.index("light") <= 2, began
    assert [name for name in began if name != "light"] == [f"heavy {n}" for n in range(50)]


def test_what_fails_or_is_given_up_frees_its_thread_and_leaves_nothing() -> None:
    async def story() -> None:
        threads = FairThreads(1, name="test")
        gate = threading.Event()
        running = threads.submit("a", lambda: gate.wait(30))
        divide = lambda: 1 // 0
        failing = threads.submit("b", divide)
        waiting = [threads.submit("c", lambda: 1) for _ in range(1000)]
        for one in waiting:
            one.cancel()
        await asyncio.sleep(0)
        assert list(threads._waiting) == [(failing, divide)]  # and no prompt of the cancelled ones
        running.cancel()
        gate.set()
        assert isinstance(
            (await asyncio.gather(failing, return_exceptions=True))[0], ZeroDivisionError
        )
        assert await threads.submit("d", lambda: 5) == 5
        threads.close()

    asyncio.run(story())


def test_closing_gives_up_what_waits() -> None:
    async def story() -> None:
        threads = FairThreads(1, name="test")
        gate = threading.Event()
        running = threads.submit("a", lambda: gate.wait(30))
        waiting = threads.submit("a", lambda: 1)
        threads.close()
        gate.set()
        assert await running
        await asyncio.wait([waiting])
        assert waiting.cancelled()

    asyncio.run(story())
