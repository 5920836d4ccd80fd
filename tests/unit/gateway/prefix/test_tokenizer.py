"""Tokens instead of bytes in the prefix index: exact where the gateway can be, and said where not."""

import json
from array import array
from pathlib import Path
from typing import Any

import pytest

from fairhit.core.cache.token_blocks import TOKEN_BYTES, BlockedTokens, chain_start
from fairhit.errors import ConfigError
from fairhit.gateway.api.endpoints.openai import CHAT, COMPLETIONS
from fairhit.gateway.api.request_body import ParsedBody, parse_body
from fairhit.gateway.prefix.engine_caches import EngineCaches
from fairhit.gateway.prefix.tokenizer import Tokenizer
from fairhit.gateway.settings import GatewaySettings

tokenizers = pytest.importorskip("tokenizers", reason="the extra `tokenizer` is not installed")

WORDS = {"a": 0, "b": 1, "?": 2, "<s>": 3, "user": 4, "assistant": 5}
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }} {{ m['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}assistant {% endif %}"
)


def folder_with(path: Path, template: str | None = None) -> Path:
    """A vocabulary of words, with a mark before each text."""
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(WORDS, unk_token="?"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.add_special_tokens(["<s>"])
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 3)]
    )
    made.save(str(path / "tokenizer.json"))
    if template is not None:
        settings = {"chat_template": template, "bos_token": "<s>"}
        (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return path


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    return Tokenizer(folder_with(tmp_path, TEMPLATE), block_len=1)


def chat(*messages: tuple[str, Any], **fields: Any) -> ParsedBody:
    turns = [{"role": role, "content": content} for role, content in messages]
    return parse_body(json.dumps({"model": "m", "messages": turns, **fields}).encode(), CHAT)


def completion(prompt: Any, **fields: Any) -> ParsedBody:
    return parse_body(json.dumps({"model": "m", "prompt": prompt, **fields}).encode(), COMPLETIONS)


def blocks(*tokens: int, start: int | None = None) -> tuple[int, ...]:
    crc = chain_start() if start is None else start
    return BlockedTokens(crc=crc, block_len=1).extended(array("I", tokens).tobytes()).chunks


def test_a_text_has_the_marks_that_the_engine_adds(tokenizer: Tokenizer) -> None:
    assert tokenizer.prompt(completion("a b")).chunks == blocks(3, 0, 1)
    assert tokenizer.prompt(completion("a b", add_special_tokens=False)).chunks == blocks(0, 1)
    assert tokenizer.prompt(completion([0, 1])).chunks == blocks(0, 1)


def test_a_chat_is_rendered_by_the_models_template(tokenizer: Tokenizer) -> None:
    asked = chat(("user", "a"), ("assistant", "b"), ("user", [{"type": "text", "text": "b"}]))
    assert tokenizer.prompt(asked).chunks == blocks(4, 0, 5, 1, 4, 1, 5)
    assert tokenizer.prompt(chat(("user", "a"), add_generation_prompt=False)).chunks == blocks(4, 0)


def test_a_conversation_begins_with_the_blocks_of_its_beginning(tokenizer: Tokenizer) -> None:
    first = tokenizer.prompt(chat(("user", "a b")))
    said = tokenizer.continued(first, "b")
    second = tokenizer.prompt(chat(("user", "a b"), ("assistant", "b"), ("user", "a")))

    assert second.chunks[: len(said.chunks)] == said.chunks
    assert len(said.chunks) == len(first.chunks) + 1


def test_salt_and_adapter_split_the_cache_and_a_models_name_does_not(tmp_path: Path) -> None:
    tokenizer = Tokenizer(folder_with(tmp_path), block_len=1, is_adapter={"lora"}.__contains__)

    salted = tokenizer.prompt(completion([0], cache_salt="s"))
    adapted = tokenizer.prompt(completion([0], model="lora"))
    other = tokenizer.prompt(completion([0], model="alias"))

    assert salted.chunks == blocks(0, start=chain_start("", "s"))
    assert adapted.chunks == blocks(0, start=chain_start("lora"))
    assert other.chunks == blocks(0)


@pytest.mark.parametrize(
    "call",
    [
        completion(["a", "b"]),
        completion([[0], [1]]),
        completion("a", suffix="b"),
        completion("a", truncate_prompt_tokens=1),
        chat(("user", [{"type": "image_url", "image_url": {"url": "x"}}])),
        chat(("user", "a"), chat_template="{{ messages }}"),
    ],
)
def test_what_only_the_engine_can_make_is_in_a_name_space_of_its_own(
    tokenizer: Tokenizer, call: ParsedBody
) -> None:
    prompt = tokenizer.prompt(call)
    assert not prompt.exact
    assert prompt.chunks and all(key < 0 for key in prompt.chunks)
    assert (tokenizer.cost.prompts, tokenizer.cost.exact) == (1, 0)


def test_without_a_template_parts_are_encoded_one_by_one(tmp_path: Path) -> None:
    tokenizer = Tokenizer(folder_with(tmp_path), block_len=1)
    first = tokenizer.prompt(chat(("user", "a b")))
    second = tokenizer.prompt(chat(("user", "a b"), ("assistant", "b")))

    assert not first.exact
    assert second.chunks[: len(first.chunks)] == first.chunks
    assert tokenizer.continued(first, "b").chunks == second.chunks


def test_tokenizing_says_what_it_has_cost(tokenizer: Tokenizer) -> None:
    tokenizer.prompt(completion("a b " * 1000))
    cost = tokenizer.cost
    assert (cost.prompts, cost.exact, cost.tokens) == (1, 1, 2001)
    assert cost.seconds > 0
    assert tokenizer.pieces.misses == 4000


def test_what_is_no_tokenizer_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        Tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match="not a tokenizer") as refused:
        Tokenizer(tmp_path)
    assert "\n" not in str(refused.value)


def test_a_template_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="chat template") as refused:
        Tokenizer(folder_with(tmp_path, "{% for %}"))
    assert "\n" not in str(refused.value)


def test_prompts_and_index_have_blocks_of_the_length_that_is_set(tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    for block_len in (4, 32):
        caches = EngineCaches(
            GatewaySettings(tokenizer=folder, block_size=block_len), is_adapter=lambda _: False
        )
        assert caches.tokenizer is not None
        call = parse_body(b'{"model": "m", "prompt": [%b1]}' % (b"0, " * 64), COMPLETIONS)
        prompt = caches.tokenizer.prompt(call)
        assert len(prompt.chunks) == 65 // block_len
        assert caches.index.covered(len(prompt.chunks)) == 64 * TOKEN_BYTES
        caches.tokenizer.close()
