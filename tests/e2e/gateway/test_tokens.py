"""The prefix index over tokens: the same answers, with the tokenizer beside the event loop."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from fairlead.core.chunk_index import ChunkedText
from fairlead.gateway.tokenizer import Tokenizer
from tests.e2e.gateway.scripts import chat, events, good
from tests.e2e.gateway.world import CHAT, World, eventually, play

tokenizers = pytest.importorskip("tokenizers", reason="the extra `tokenizer` is not installed")

LONG = "a b " * 400


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


def test_prompts_are_counted_and_conversations_found_again(folder: Path) -> None:
    async def story(world: World) -> None:
        assert (await world.ask(body=asking(LONG))).body == b"".join(events(usage=False))
        index = world.gateway.dispatcher.index
        first, second = (len(engine.received) for engine in world.engines)
        used = world.engines[0] if first else world.engines[1]
        assert first + second == 1
        await world.ask(body=asking(LONG, "abc", "and now"))

        assert len(used.received) == 2
        # 800 words, the others, and a mark before each part: all four bytes long.
        tokens = 1 + 2 + 801 + 2 + 2 + 2 + 3
        assert index.size(used.url) == len(ChunkedText().extended(bytes(4 * tokens)).chunks)

    play(story, good, good, tokenizer=folder)


def test_a_caller_may_leave_or_err_while_its_prompt_is_tokenized(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = Tokenizer.encode

    def slowly(self: Tokenizer, parts: Sequence[str]) -> bytes:
        time.sleep(0.2)
        return encode(self, parts)

    async def story(world: World) -> None:
        monkeypatch.setattr(Tokenizer, "encode", slowly)
        leaving = await world.connect()
        leaving.send(CHAT, asking("a"))
        staying = await world.connect()
        staying.send(CHAT, chat(model="unknown"))
        staying.send(CHAT, asking("b"))
        await asyncio.sleep(0.05)
        leaving.reset()
        assert (await world.get("/health")).status == 200  # the loop is not held up

        assert [(await staying.reply()).status for _ in range(2)] == [404, 200]
        await eventually(lambda: len(world.received()) == 1)
        staying.writer.close()

    play(story, good, tokenizer=folder)


def test_a_tokenizer_that_fails_is_an_error_of_ours(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Tokenizer, parts: Sequence[str]) -> bytes:
        raise ValueError("no")

    async def story(world: World) -> None:
        monkeypatch.setattr(Tokenizer, "encode", fails)
        reply = await world.ask()
        assert (reply.status, reply.error()["type"]) == (500, "server_error")

    play(story, good, tokenizer=folder)
