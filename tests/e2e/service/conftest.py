"""One real service for the tests of a file: two vLLM engines with DLPM behind the gateway with D2LPM."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from fairhit.gateway import settings
from fairhit.local import serve

KEYS = {"heavy": "key-of-heavy", "light": "key-of-light"}
START_TIMEOUT_S = 300


@dataclass
class Running:
    """The service, kept by an event loop of its own, and what it said meanwhile."""

    service: serve.RunningService
    loop: asyncio.AbstractEventLoop
    news: list[tuple[str, str]] = field(default_factory=list)

    def wait_ready(self, number: int) -> None:
        """Until that engine answers again."""
        ready = self.service.engines[number].ready.wait()
        asyncio.run_coroutine_threadsafe(ready, self.loop).result(START_TIMEOUT_S)


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    """Started once for a file, since it takes half a minute. Without vLLM this is an error, never a skip."""
    options = serve.ServeOptions(
        gateway=settings.make(
            {
                "port": 0,
                "tenant_api_key": [f"{name}:{key}" for name, key in KEYS.items()],
                "health_check_interval_secs": 1,
            },
            where="tests",
        ),
        quantum=512,
    )
    news: list[tuple[str, str]] = []
    started: list[Running] = []
    up, stop = threading.Event(), asyncio.Event()
    failures: list[BaseException] = []

    async def keep() -> None:
        async with serve.running(options, lambda name, text: news.append((name, text))) as service:
            started.append(Running(service, asyncio.get_running_loop(), news))
            up.set()
            await stop.wait()

    def work() -> None:
        try:
            asyncio.run(keep())
        except BaseException as error:  # noqa: BLE001  it must reach the test that waits
            failures.append(error)
        finally:
            up.set()

    thread = threading.Thread(target=work, name="service")
    thread.start()
    assert up.wait(START_TIMEOUT_S), news
    if failures:
        raise failures[0]
    yield started[0]
    started[0].loop.call_soon_threadsafe(stop.set)
    thread.join(60)
    assert not thread.is_alive()
    assert failures == []
