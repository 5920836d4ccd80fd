"""A thread pool that serves clients round-robin."""

import asyncio
import threading

from fairhit.gateway.prefix.fair_threads import FairThreads


def test_much_work_of_one_client_delays_no_other_client() -> None:
    """With a thread and a hundred prompts of one client, another client's prompt is at most the third."""
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


def test_failed_and_cancelled_work_frees_its_thread() -> None:
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


def test_closing_cancels_waiting_work() -> None:
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
