"""The gateway's index agrees with the cached_tokens that a real engine reports."""

import asyncio
import importlib.util
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop

# Looked for, not imported: the engine is another process, and importing it takes a minute on a busy core.
for name in ("vllm", "tokenizers"):
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed", allow_module_level=True)
pytestmark = [pytest.mark.e2e, pytest.mark.vllm]

from fairhit.local.engine_process import HOST, free_ports  # noqa: E402
from fairhit.routers.prefix_index.precise import Knowledge  # noqa: E402
from tests.e2e.kv_events.engine import (  # noqa: E402
    BLOCK_LEN,
    Engine,
    Pair,
    gateway_before,
    running,
)
from tests.e2e.kv_events.link import Link  # noqa: E402
from tests.e2e.kv_events.prompts import COMPLETIONS, asked, numbers  # noqa: E402


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with running(tmp_path_factory.mktemp("engine")) as one:
        yield one


def tell(
    engine: Engine, story: Callable[[Pair], Coroutine[Any, Any, None]], **settings: Any
) -> None:
    async def run() -> None:
        async with gateway_before(engine, **settings) as pair:
            await story(pair)

    uvloop.run(run())


def test_the_index_is_the_engines_cache_after_evictions_too(engine: Engine) -> None:
    """40 prompts of the three forms need several times the 96 blocks there are."""

    async def story(pair: Pair) -> None:
        await pair.until(Knowledge.COMPLETE)
        differences = await pair.differences(*asked(1, 40))
        assert differences == [0] * 40
        assert pair.index.confirmed(pair.engine.url) <= 96
        errors = pair.gateway.dispatcher.estimates.of_each()[pair.engine.url]
        assert (errors.count, errors.over, errors.under) == (40, 0, 0)

    tell(engine, story)


def test_a_gateway_that_starts_later_learns_all_from_the_replay(engine: Engine) -> None:
    async def story(pair: Pair) -> None:
        await pair.until(Knowledge.COMPLETE)
        assert pair.index.confirmed(pair.engine.url) > 40
        assert await pair.differences(*asked(2, 9)) == [0] * 9

    tell(engine, story)


def test_salts_have_caches_of_their_own(engine: Engine) -> None:
    async def story(pair: Pair) -> None:
        await pair.until(Knowledge.COMPLETE)
        prompt = numbers(77, 200)
        salted = (COMPLETIONS, {"prompt": prompt, "cache_salt": "s"})
        plain = (COMPLETIONS, {"prompt": prompt})
        assert await pair.differences(salted, plain, salted, plain) == [0] * 4
        assert pair.expected(*salted) == pair.expected(*plain) == 200 // BLOCK_LEN * BLOCK_LEN

    tell(engine, story)


def test_without_a_replay_a_late_gateway_says_that_it_does_not_know_all(engine: Engine) -> None:
    async def story(pair: Pair) -> None:
        await pair.until(Knowledge.NONE)
        known = (COMPLETIONS, {"prompt": numbers(88, 300)})
        await pair.ask(*known)
        await pair.until(Knowledge.PARTIAL)
        assert await pair.differences(known) == [0]

    tell(engine, story, kv_events_replay_endpoint={})


def test_what_a_cut_line_has_missed_is_asked_for(engine: Engine) -> None:
    """Requests past the gateway while its link is cut, then the link is back."""

    async def story() -> None:
        (port,) = free_ports(1)
        link = await Link.open(port, engine.ports[1])
        endpoint = {engine.url: (f"tcp://{HOST}:{port}",)}
        async with gateway_before(engine, kv_events_endpoint=endpoint) as pair:
            await pair.until(Knowledge.COMPLETE)
            link.cut()
            await pair.until(Knowledge.PARTIAL)
            for path, body in asked(3, 6):
                await pair.ask(path, body, around=True)
            await link.mend()
            await pair.until(Knowledge.COMPLETE)
            assert await pair.differences(*asked(3, 12)) == [0] * 12
        link.close()

    uvloop.run(story())


def test_batches_lost_on_a_line_that_stays_are_asked_for(engine: Engine) -> None:
    async def story() -> None:
        (port,) = free_ports(1)
        link = await Link.open(port, engine.ports[1])
        endpoint = {engine.url: (f"tcp://{HOST}:{port}",)}
        async with gateway_before(engine, kv_events_endpoint=endpoint) as pair:
            await pair.until(Knowledge.COMPLETE)
            link.drops = 1
            for seed in (500, 501):  # what is lost shows when something follows
                await pair.ask(COMPLETIONS, {"prompt": numbers(seed, 300)}, around=True)
                await pair.heard()
            assert await pair.differences(*asked(4, 6)) == [0] * 6
            assert pair.counts.total("gaps") >= 1
        link.close()

    uvloop.run(story())


def test_after_a_restart_nothing_of_the_old_cache_is_believed(engine: Engine) -> None:
    async def story(pair: Pair) -> None:
        await pair.until(Knowledge.COMPLETE)
        known = (COMPLETIONS, {"prompt": numbers(99, 300)})
        await pair.differences(known)
        assert pair.expected(*known) == 288

        await asyncio.to_thread(engine.stop)
        await asyncio.to_thread(engine.start)
        await pair.until(Knowledge.COMPLETE)
        assert pair.expected(*known) == 0
        assert await pair.differences(known, known, *asked(5, 9)) == [0] * 11

    tell(engine, story)
