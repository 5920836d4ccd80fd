"""The prefix index over tokens: the same answers, with the tokenizer beside the event loop."""

import asyncio
import threading
from pathlib import Path
from typing import cast

import pytest

from fairhit.core.cache.token_blocks import BLOCK_LEN, BlockedTokens
from fairhit.gateway.api.request_body import ParsedBody
from fairhit.gateway.http.client_connection import ClientConnection
from fairhit.gateway.prefix.tokenizer import Tokenizer
from fairhit.gateway.proxy.admission import PendingRequest
from fairhit.routers.prefix_index.precise import PrecisePrefixIndex
from tests.e2e.gateway.scripts import chat, events, good
from tests.e2e.gateway.world import CHAT, TIMEOUT_S, World, eventually, play

tokenizers = pytest.importorskip("tokenizers", reason="the extra `tokenizer` is not installed")

LONG = "a b " * 400
THREADS = 2  # of the tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = tokenizers.models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?")
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def asking(*contents: str) -> bytes:
    roles = ("user", "assistant", "user")
    messages = [{"role": r, "content": c} for r, c in zip(roles, contents, strict=False)]
    return chat(messages=messages, stream=True)


def hold_tokenizer(monkeypatch: pytest.MonkeyPatch) -> tuple[list[ParsedBody], threading.Event]:
    """Bodies that the tokenizer's threads have begun with, and the event that releases the threads."""
    begun: list[ParsedBody] = []
    go_on, made = threading.Event(), Tokenizer.prompt

    def prompt(self: Tokenizer, call: ParsedBody) -> BlockedTokens:
        begun.append(call)
        assert go_on.wait(TIMEOUT_S)
        return made(self, call)

    monkeypatch.setattr(Tokenizer, "prompt", prompt)
    return begun, go_on


def test_prompts_are_counted_and_conversations_found_again(folder: Path) -> None:
    async def story(world: World) -> None:
        assert (await world.ask(body=asking(LONG))).body == b"".join(events(usage=False))
        index = world.gateway.dispatcher.index
        first, second = (len(engine.received) for engine in world.engines)
        used = world.engines[0] if first else world.engines[1]
        assert first + second == 1
        await world.ask(body=asking(LONG, "abc", "and now"))

        assert len(used.received) == 2
        # 800 words, the others, the last answer, and a mark before each part.
        tokens = 2 + 801 + 2 + 2 + 2 + 3 + 2 + 2
        assert isinstance(index, PrecisePrefixIndex)
        await eventually(lambda: index.size(used.url) == tokens // BLOCK_LEN)

    play(story, good, good, tokenizer=folder)


def test_a_caller_may_leave_or_err_while_its_prompt_is_tokenized(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded, go_on = hold_tokenizer(monkeypatch)

    async def story(world: World) -> None:
        leaving = await world.connect()
        leaving.send(CHAT, asking("a"))
        staying = await world.connect()
        staying.send(CHAT, chat(model="unknown"))
        staying.send(CHAT, asking("b"))
        await eventually(lambda: len(encoded) == 2)
        leaving.reset()
        assert (await world.get("/health")).status == 200  # the loop is not held up
        await eventually(lambda: len(world.gateway.connections) == 1)
        go_on.set()

        assert [(await staying.reply()).status for _ in range(2)] == [404, 200]
        await eventually(lambda: len(world.received()) == 1)
        staying.writer.close()

    play(story, good, tokenizer=folder)


def test_prompts_of_a_client_over_its_limit_delay_no_other_client(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flood is refused before it costs a thread, and who leaves takes its prompt along."""
    encoded, go_on = hold_tokenizer(monkeypatch)

    async def story(world: World) -> None:
        callers = [await world.connect() for _ in range(20)]
        for caller in callers:
            caller.send(CHAT, chat(), authorization="Bearer k1")
        refused = [(await caller.reply()).status for caller in callers[8:]]
        assert refused == [429] * 12
        for caller in callers:
            caller.reset()
        await eventually(lambda: not world.gateway.connections)
        await world.get("/health")  # prompts that wait are given up in a turn of the loop to come
        go_on.set()

        assert (await world.ask(authorization="Bearer k2")).status == 200
        assert len(encoded) == THREADS + 1
        assert (await world.ask(authorization="Bearer k1")).status == 200

    keys = ("alice:k1", "bob:k2")
    play(story, good, tokenizer=folder, tenant_api_key=keys, max_client_requests=8)


def test_who_leaves_just_as_its_prompt_is_tokenized_has_left() -> None:
    """The tokens may be on their way to the event loop already; the place is given up once."""

    async def story() -> None:
        released: list[str] = []
        encoding: asyncio.Future[BlockedTokens] = asyncio.get_running_loop().create_future()
        connection = cast("ClientConnection", object())
        waiting = PendingRequest(
            connection, encoding, deadline=0, release=lambda: released.append("a")
        )
        encoding.set_result(BlockedTokens())
        waiting.on_disconnect()
        waiting.done(None)
        assert released == ["a"]

    asyncio.run(story())


def test_a_tokenizer_that_fails_is_an_error_of_ours(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Tokenizer, call: ParsedBody) -> BlockedTokens:
        raise ValueError("no")

    async def story(world: World) -> None:
        monkeypatch.setattr(Tokenizer, "prompt", fails)
        reply = await world.ask()
        assert (reply.status, reply.error()["type"]) == (500, "server_error")

    play(story, good, tokenizer=folder)
