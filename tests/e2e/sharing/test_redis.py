"""Two gateways with a ledger in a real Redis: shares stay 4:1, and requests are served in an outage."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from fairhit.gateway.process.sharing.ledger_exchange import timeout_s
from fairhit.gateway.server import Gateway
from fairhit.gateway.settings import GatewaySettings
from tests.e2e.gateway.world import eventually
from tests.e2e.sharing.engine import SlotEngine, keep_asking
from tests.e2e.sharing.redis import SERVER, Redis, running

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(SERVER is None, reason="no redis-server: scripts/install_programs.py"),
]

WEIGHTS = {"a": "4", "b": "1"}
CALLERS = 24  # of each client: more than an engine and its queue hold
# Requests that both get while all callers come, and those that are counted: twelve rounds of 1000 tokens.
WARM, COUNTED = 50, 200


async def two_gateways(engine: SlotEngine, **settings: object) -> list[Gateway]:
    gateways = []
    for _ in range(2):
        gateway = Gateway(
            GatewaySettings(
                port=0, worker_urls=(engine.url,), trust_tenant_header=True, weights=WEIGHTS,
                quantum=200, queue="gateway", shutdown_timeout_secs=0.2, load_interval_secs=0.05,
                **settings,
            )
        )  # fmt: skip
        await gateway.start()
        await eventually(gateway.dispatcher.ready)
        gateways.append(gateway)
    return gateways


def play(story: Callable[[SlotEngine, list[Gateway]], Awaitable[None]], **settings: object) -> None:
    """The skewed case: all of a's callers at one gateway, all of b's at the other."""

    async def run() -> None:
        engine = await SlotEngine().start()
        gateways = await two_gateways(engine, **settings)
        asking = [
            asyncio.create_task(
                keep_asking(
                    await asyncio.open_connection("127.0.0.1", gateway.port), client, number
                )
            )
            for gateway, client in zip(gateways, "ab", strict=True)
            for number in range(CALLERS)
        ]
        try:
            await story(engine, gateways)
        finally:
            for task in asking:
                task.cancel()
            await asyncio.wait(asking)
            for gateway in gateways:
                await gateway.stop()
            engine.stop()

    uvloop.run(run())


def sample(gateway: Gateway, name: str) -> float:
    """A metric, as Prometheus reads it."""
    for line in gateway._metrics.exposition().decode().splitlines():
        if line.startswith(name + " "):
            return float(line.split()[-1])
    raise AssertionError(f"no {name}")


async def both_share(gateways: list[Gateway]) -> None:
    """Wait until each gateway knows of the other."""
    for gateway in gateways:
        await eventually(lambda gateway=gateway: sample(gateway, "fairhit_sharing_gateways") == 2)


def test_without_an_account_four_to_one_becomes_one_to_one() -> None:
    async def story(engine: SlotEngine, gateways: list[Gateway]) -> None:
        await engine.serve_requests(WARM)
        assert 0.6 < await engine.serve_requests(COUNTED) < 1.6

    play(story)


@pytest.mark.parametrize("scheduler", ["dlpm", "fair"])
def test_with_one_it_stays_four_to_one(scheduler: str) -> None:
    async def story(engine: SlotEngine, gateways: list[Gateway]) -> None:
        await both_share(gateways)
        await engine.serve_requests(WARM)
        assert 3 < await engine.serve_requests(COUNTED) < 5
        assert [sample(gateway, "fairhit_sharing_gateways") for gateway in gateways] == [2, 2]

    with running() as redis:
        play(
            story,
            share_url=redis.url,
            share_interval_secs=0.05,
            scheduler=scheduler,
            cost="linear:1,2",
        )


def test_requests_are_served_in_an_outage_and_fairness_returns_with_redis() -> None:
    redis = Redis()

    async def story(engine: SlotEngine, gateways: list[Gateway]) -> None:
        await both_share(gateways)
        await engine.serve_requests(WARM)
        redis.kill()
        await eventually(
            lambda: not any(sample(gateway, "fairhit_sharing_up") for gateway in gateways)
        )
        assert 0.5 < await engine.serve_requests(COUNTED) < 2  # each by itself
        redis.start()
        await eventually(lambda: all(sample(gateway, "fairhit_sharing_up") for gateway in gateways))
        await engine.serve_requests(WARM)
        assert 3 < await engine.serve_requests(COUNTED) < 5

    redis.start()
    try:
        play(story, share_url=redis.url, share_interval_secs=0.05)
    finally:
        redis.kill()


def test_a_gateway_that_dies_delays_the_other_only_briefly() -> None:
    """
    It is not asked, it says nothing any more: what its clients would have had goes to the others, by
    the others' own clock in so many seconds (`test_only_who_stands_still_is_silent`).
    """

    async def story(engine: SlotEngine, gateways: list[Gateway]) -> None:
        await both_share(gateways)
        await engine.serve_requests(WARM)
        assert timeout_s(gateways[0]._ledger_exchange._period_s()) <= 2
        # It stops, and its last report says that a waits.
        gateways[0]._ledger_exchange._closing = True
        await eventually(lambda: sample(gateways[1], "fairhit_sharing_gateways") == 1)
        assert await engine.serve_requests(COUNTED) < 2

    with running() as redis:
        play(story, share_url=redis.url, share_interval_secs=0.05)
