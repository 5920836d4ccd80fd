"""Settings applied under way: wholly or not at all."""

from pathlib import Path
from typing import Any

import pytest

from fairhit.errors import ConfigError
from tests.e2e.gateway.scripts import chat, good, hang
from tests.e2e.gateway.world import CHAT, World, eventually, play


def apply(world: World, **changes: Any) -> None:
    world.gateway.apply(world.gateway.settings.replaced(**changes))


def test_a_gateway_that_asks_for_keys_is_not_opened_by_a_list_without_any() -> None:
    """A file with one wrong line, or a flag that was lost, must not let anybody in."""

    async def story(world: World) -> None:
        with pytest.raises(ConfigError, match="only a restart opens the gateway"):
            apply(world, tenant_api_key=(), trust_tenant_header=True)
        assert not world.gateway.settings.trust_tenant_header
        assert (await world.ask()).status == 401
        assert (await world.ask(authorization="Bearer k")).status == 200
        apply(world, tenant_api_key=("a:other",))
        assert (await world.ask(authorization="Bearer other")).status == 200

    play(story, good, tenant_api_key=("a:k",))


def test_how_many_may_wait_and_how_long_can_change() -> None:
    """Requests that wait already keep their position and their time limit."""

    async def story(world: World) -> None:
        dispatcher = world.gateway.dispatcher
        callers = [await world.connect() for _ in range(4)]
        for caller in callers[:2]:
            caller.send(CHAT, chat())
        await eventually(lambda: len(dispatcher.queue) == 1)
        assert (await world.ask()).status == 429
        apply(world, queue_size=3, queue_timeout_secs=0.1)
        for caller in callers[2:]:
            caller.send(CHAT, chat())

        assert [(await caller.reply()).status for caller in callers[2:]] == [503, 503]
        assert len(dispatcher.queue) == 1
        for caller in callers[:2]:
            caller.reset()
        await eventually(lambda: not world.gateway.exchanges)

    play(story, hang, queue_size=1, max_engine_requests=1, client_timeout_secs=1)


def test_all_clients_together_are_limited_before_each() -> None:
    """Under overload no body is parsed only for its request to be refused."""

    async def story(world: World) -> None:
        caller = await world.connect()
        caller.send(CHAT, chat())
        await eventually(lambda: len(world.received()) == 1)
        assert "too many requests are in flight" in (await world.ask()).error()["message"]
        apply(world, max_concurrent_requests=-1)
        assert "you have 1 requests in flight" in (await world.ask()).error()["message"]
        caller.reset()
        await eventually(lambda: not world.gateway.exchanges)

    play(story, hang, max_concurrent_requests=1, max_client_requests=1, queue_size=0)


def test_an_engine_that_cannot_be_believed_changes_nothing_else(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        engines = (*world.gateway.settings.worker_urls, "https://127.0.0.1:1")
        with pytest.raises(ConfigError, match="ca-cert-paths"):
            apply(world, worker_urls=engines, tenant_api_key=("a:k",), max_payload_size=1)
        assert world.gateway.settings.worker_urls == engines[:1]
        assert (await world.ask()).status == 200

    play(story, good, ca_cert_paths=(tmp_path / "none.pem",))
