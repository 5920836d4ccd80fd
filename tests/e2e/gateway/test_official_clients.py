"""The clients of OpenAI and Anthropic, as their makers publish them, in front of engines that play."""

from collections.abc import Awaitable, Callable

import anthropic
import openai
import pytest

from tests.e2e.gateway.path_scripts import ASKED, any_path, stops_after
from tests.e2e.gateway.scripts import broken, chat, hang
from tests.e2e.gateway.world import CHAT, World, eventually, play


def by_openai(world: World) -> openai.AsyncOpenAI:
    url = f"http://127.0.0.1:{world.gateway.port}/v1"
    return openai.AsyncOpenAI(base_url=url, api_key="k", max_retries=0)


def by_anthropic(world: World) -> anthropic.AsyncAnthropic:
    url = f"http://127.0.0.1:{world.gateway.port}"
    return anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0)


async def message(world: World) -> None:
    made = by_anthropic(world).messages
    async with made.stream(model="m", max_tokens=5, messages=ASKED) as stream:  # type: ignore[arg-type]
        async for _ in stream:
            pass


async def response(world: World) -> None:
    async for _ in await by_openai(world).responses.create(model="m", input="hi", stream=True):
        pass


def test_official_clients_understand_what_passes() -> None:
    async def story(world: World) -> None:
        await message(world)
        await response(world)
        assert world.spent("alice") == 2 * (18 + 2 * 3)

    play(story, any_path, tenant_api_key=("alice:k",))


@pytest.mark.parametrize(
    ("ask", "expected"),
    [(message, anthropic.APIStatusError), (response, openai.APIError)],
    ids=["anthropic", "openai"],
)
def test_official_clients_raise_when_an_engine_stops_halfway(
    ask: Callable[[World], Awaitable[None]], expected: type[Exception]
) -> None:
    """An answer cut short must not look like a whole one; and missing output is not charged."""

    async def story(world: World) -> None:
        with pytest.raises(expected, match="the engine failed while answering"):
            await ask(world)

    play(story, stops_after(4))


def test_official_clients_know_our_errors() -> None:
    async def story(world: World) -> None:
        busy = await world.connect()
        busy.send(CHAT, chat())
        await eventually(lambda: len(world.received()) == 1)
        with pytest.raises(anthropic.RateLimitError):
            await message(world)
        with pytest.raises(openai.RateLimitError):
            await response(world)
        busy.reset()
        await eventually(world.engines[0].left.is_set)
        await eventually(lambda: not world.gateway.exchanges)
        world.engines[0].script = broken
        with pytest.raises(anthropic.InternalServerError):
            await message(world)

    play(story, hang, max_client_requests=1)
