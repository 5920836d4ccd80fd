"""The gateway's view of a real SGLang's cache equals the cached_tokens that SGLang reports.

It knows whole blocks of 16 tokens; SGLang may have pages of one, and so up to 15 tokens more.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop
import zmq

from fairhit.gateway.prefix.kv_events.messages import read_batch
from fairhit.local.engine_process import HOST, free_ports
from fairhit.routers.prefix_index.precise import Knowledge
from tests.e2e.kv_events.engine import Pair, gateway_before
from tests.e2e.kv_events.link import Link
from tests.e2e.kv_events.prompts import COMPLETIONS, asked, numbers
from tests.sglang.capture import CAPTURES, TOKENS, empty, played, published, script
from tests.sglang.publishing import PublishingSGLang
from tests.sglang.server import running

pytestmark = pytest.mark.e2e

BLOCK_LEN = 16
Story = Callable[[Pair], Coroutine[Any, Any, None]]


@pytest.fixture(
    scope="module",
    params=[("fcfs", "default", 1), ("dlpm", "dynamo", 16)],
    ids=lambda given: "-".join(map(str, given)),
)
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PublishingSGLang]:
    policy, form, page_len = request.param
    folder = tmp_path_factory.mktemp("engine")
    one = PublishingSGLang(folder, policy=policy, form=form, page_len=page_len)
    try:
        one.start()
        yield one
    finally:
        one.stop()


def tell(engine: PublishingSGLang, story: Story, **settings: Any) -> None:
    async def run() -> None:
        async with gateway_before(engine, block_len=BLOCK_LEN, **settings) as pair:
            await story(pair)

    uvloop.run(run())


async def blocks_off(pair: Pair, *asked: tuple[str, dict[str, Any]]) -> list[int]:
    """Of each prompt, one after the other: whole blocks that the engine had, less those expected."""
    return [off // BLOCK_LEN for off in await pair.differences(*asked)]


def through(link: Link, engine: PublishingSGLang) -> dict[str, Any]:
    """Settings by which events come over `link`."""
    return {"kv_events_endpoint": {engine.url: (f"tcp://{HOST}:{link.port}",)}}


def test_the_index_is_the_engines_cache_after_evictions_too(engine: PublishingSGLang) -> None:
    """40 prompts of the three forms need several times the 3,000 tokens there are."""

    async def story(pair: Pair) -> None:
        await pair.until(Knowledge.COMPLETE)
        assert await blocks_off(pair, *asked(1, 40)) == [0] * 40
        assert 0 < pair.index.confirmed(engine.url) <= 3000 // BLOCK_LEN
        assert pair.counts.total("malformed") == pair.counts.orphaned == 0

    tell(engine, story)


def test_a_gateway_that_starts_later_learns_all_from_the_replay(engine: PublishingSGLang) -> None:
    async def story(pair: Pair) -> None:
        await pair.until(Knowledge.COMPLETE)
        assert pair.index.confirmed(engine.url) > 100
        assert await blocks_off(pair, *asked(2, 9)) == [0] * 9

    tell(engine, story)


def test_an_emptied_cache_is_known_to_be_empty(engine: PublishingSGLang) -> None:
    async def story(pair: Pair) -> None:
        await pair.until(Knowledge.COMPLETE)
        known = (COMPLETIONS, {"prompt": numbers(66, 300)})
        await pair.differences(known)
        assert pair.expected(*known) == 288
        assert engine.server is not None
        await asyncio.to_thread(engine.server.forget)
        await pair.heard()
        assert pair.expected(*known) == 0
        assert pair.index.confirmed(engine.url) == 1  # of the prompt by which that is heard
        assert await blocks_off(pair, known, known) == [0, 0]

    tell(engine, story)


def test_salts_have_caches_of_their_own(engine: PublishingSGLang) -> None:
    async def story(pair: Pair) -> None:
        await pair.until(Knowledge.COMPLETE)
        prompt = numbers(77, 200)
        plain = (COMPLETIONS, {"prompt": prompt})
        salted = [(COMPLETIONS, {"prompt": prompt, "cache_salt": salt}) for salt in "st"]
        assert await blocks_off(pair, salted[0], salted[1], plain, salted[0]) == [0] * 4
        assert [pair.expected(*each) for each in (plain, *salted)] == [192] * 3

    tell(engine, story)


def test_isolated_clients_are_not_thought_to_share(engine: PublishingSGLang) -> None:
    """With `--isolate-prefixes`: what is charged is estimated as the engine computes it."""

    async def story(pair: Pair) -> None:
        await pair.until(Knowledge.COMPLETE)
        cached = []
        for client in ("a", "b", "a"):
            body = {"prompt": numbers(78, 208), "user": client}
            cached.append(await pair.ask(COMPLETIONS, body))
            await pair.heard()
        assert cached[:2] == [0, 0] and cached[2] >= 192
        errors = pair.gateway.dispatcher.estimates.of_each()[engine.url]
        assert (errors.count, errors.under) == (3, 0)
        assert errors.over < BLOCK_LEN

    tell(engine, story, isolate_prefixes=True, identify_by_user=True)


def test_extra_keys_are_not_told(engine: PublishingSGLang) -> None:
    """SGLang's events leave `extra_key` out in both formats, so the plain prompt seems to be cached, too."""

    async def story(pair: Pair) -> None:
        await pair.until(Knowledge.COMPLETE)
        prompt = numbers(79, 200)
        await pair.ask(COMPLETIONS, {"prompt": prompt, "extra_key": "k"})
        await pair.heard()
        plain = (COMPLETIONS, {"prompt": prompt})
        assert (pair.expected(*plain), await pair.ask(*plain)) == (192, 0)

    tell(engine, story)


def test_what_a_cut_line_has_missed_is_asked_for(engine: PublishingSGLang) -> None:
    """Requests past the gateway while it hears nothing, then the line is back."""

    async def story() -> None:
        link = await Link.open(free_ports(1)[0], engine.ports[1])
        async with gateway_before(engine, block_len=BLOCK_LEN, **through(link, engine)) as pair:
            await pair.until(Knowledge.COMPLETE)
            link.cut()
            await pair.until(Knowledge.PARTIAL)
            for path, body in asked(3, 6):
                await pair.ask(path, body, around=True)
            await link.mend()
            await pair.until(Knowledge.COMPLETE)
            assert await blocks_off(pair, *asked(3, 12)) == [0] * 12
        link.close()

    uvloop.run(story())


def test_batches_lost_on_a_line_that_stays_are_asked_for(engine: PublishingSGLang) -> None:
    async def story() -> None:
        link = await Link.open(free_ports(1)[0], engine.ports[1])
        async with gateway_before(engine, block_len=BLOCK_LEN, **through(link, engine)) as pair:
            await pair.until(Knowledge.COMPLETE)
            link.drops = 1
            for seed in (500, 501):  # what is lost shows when something follows
                await pair.ask(COMPLETIONS, {"prompt": numbers(seed, 300)}, around=True)
                await pair.heard()
            assert await blocks_off(pair, *asked(4, 6)) == [0] * 6
            assert pair.counts.total("gaps") >= 1
        link.close()

    uvloop.run(story())


def test_after_a_restart_nothing_of_the_old_cache_is_believed(engine: PublishingSGLang) -> None:
    async def story(pair: Pair) -> None:
        await pair.until(Knowledge.COMPLETE)
        known = (COMPLETIONS, {"prompt": numbers(99, 300)})
        await pair.differences(known)
        assert pair.expected(*known) == 288

        await asyncio.to_thread(engine.stop)
        await asyncio.to_thread(engine.start)
        await pair.until(Knowledge.COMPLETE)
        assert pair.expected(*known) == 0
        assert await blocks_off(pair, known, known, *asked(5, 9)) == [0] * 11

    tell(engine, story)


def test_the_plug_in_leaves_the_events_as_they_are(tmp_path: Any) -> None:
    """The plug-in observes the cache by the recorder of KV events: with `dlpm` and with SGLang's own `fcfs`,
    from which the capture is, the same prompts make the same events.
    """
    stem = "sglang-0.5.23-default-page1"
    captured = [json.loads(line) for line in (CAPTURES / f"{stem}.jsonl").read_text().splitlines()]
    port, replay_port = free_ports(8)[-2:]  # the server takes the first
    with zmq.Context() as context, context.socket(zmq.SUB) as ears:
        ears.set(zmq.SUBSCRIBE, b"kv")
        ears.connect(f"tcp://{HOST}:{port}")
        flags = ("--max-total-tokens", str(TOKENS), *published(port, replay_port))
        with running(tmp_path, "dlpm", *flags) as server:
            empty(server, ears)
            lines = [
                line
                for step, least in zip(script(), batches_of_each(captured), strict=True)
                for line in played(server, ears, step, least)
            ]

    assert list(map(without_time, lines)) == list(map(without_time, captured))


def batches_of_each(captured: list[dict[str, Any]]) -> list[int]:
    """Return the number of messages of each step."""
    counts: list[int] = []
    for line in captured:
        if "batch" in line:
            counts[-1] += 1
        else:
            counts.append(0)
    return counts


def without_time(line: dict[str, Any]) -> object:
    """A line of a capture; of a batch its events."""
    return read_batch(bytes.fromhex(line["batch"])).events if "batch" in line else line
