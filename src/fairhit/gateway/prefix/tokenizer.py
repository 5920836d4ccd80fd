"""Tokenizes prompts as the engine will (`--tokenizer`), in threads beside the event loop.

Exact tokens are known for prompts given as tokens, for texts, and for chats of text that the model's
template renders. For others (batches, images, endpoints whose prompt only the engine can build) each part
is encoded by itself: enough to recognise a conversation, but not the engine's tokens.
"""

import asyncio
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar
from zlib import crc32

from fairhit.core.cache.token_blocks import BLOCK_LEN, BlockedTokens, chain_start
from fairhit.core.request import ClientId
from fairhit.errors import ConfigError
from fairhit.gateway.api.request_body import ParsedBody
from fairhit.gateway.prefix.chat_template import ChatTemplate
from fairhit.gateway.prefix.fair_threads import FairThreads
from fairhit.gateway.prefix.segments import PieceCache, cut, is_cuttable
from fairhit.installing import install_command

T = TypeVar("T")

# The library releases Python's lock; more threads would only take cores from engines on this machine.
_THREADS = 2
# Capacity of the cache of pieces.
_CACHE_BYTES = 32 << 20
# Between the parts of a prompt; no vocabulary has this number.
_SEPARATOR = array("I", [0xFFFFFFFF]).tobytes()
# Fields of a completion request that change its prompt.
_OTHER_PROMPT = ("suffix", "prompt_embeds", "truncate_prompt_tokens")


@dataclass(slots=True)
class TokenizerCost:
    """Cost of tokenizing since the start."""

    prompts: int = 0
    exact: int = 0  # of the prompts
    tokens: int = 0
    seconds: float = 0.0  # CPU time of the threads


class Tokenizer:
    """Tokenizer and chat template of a model, loaded from its folder. Raises ConfigError."""

    def __init__(
        self,
        folder: Path,
        *,
        block_len: int = BLOCK_LEN,
        is_adapter: Callable[[str], bool] = frozenset[str]().__contains__,
    ) -> None:
        self._encoder = _load(folder)
        self._template = ChatTemplate.of(folder)
        self._block_len = block_len
        self._is_adapter = is_adapter
        self._before, self._after = self._added()
        self._cuts = is_cuttable(self._encode_one) and not self._has_wide_tokens()
        self.pieces = PieceCache(capacity=_CACHE_BYTES)
        self.cost = TokenizerCost()
        self._lock = Lock()
        self._threads = FairThreads(_THREADS, name="tokenizer")

    def prompt(self, call: ParsedBody) -> BlockedTokens:
        """Tokens of a request's prompt. O(text) without the cached pieces."""
        began_s = time.thread_time()
        tokens, exact = self._tokens(call)
        made = self._start(call, exact=exact).extended(tokens)
        with self._lock:
            self.cost.prompts += 1
            self.cost.exact += exact
            self.cost.tokens += made.length
            self.cost.seconds += time.thread_time() - began_s
        return made

    def continued(self, prompt: BlockedTokens, answer: str) -> BlockedTokens:
        """`prompt` followed by its output, with which the conversation's next prompt begins. O(output)."""
        if prompt.exact:  # the output follows immediately
            return prompt.extended(self._encode(answer))
        return prompt.extended(self._parts(("assistant", answer)))

    def submit(
        self, client: ClientId, work: Callable[[], T], then: Callable[[T | None], None]
    ) -> "asyncio.Future[T]":
        """Run `work` in a thread, clients round-robin; call `then` with the result, None if it failed.

        Cancelling the returned future suppresses `then`, and skips the work if it has not started.
        """
        future = self._threads.submit(client, work)
        future.add_done_callback(lambda done: None if done.cancelled() else then(_result(done)))
        return future

    def close(self) -> None:
        """Cancel all work that has not begun."""
        self._threads.close()

    # -- inside

    def _start(self, call: ParsedBody, *, exact: bool) -> BlockedTokens:
        if exact:
            adapter = call.model if call.model and self._is_adapter(call.model) else ""
            crc = chain_start(adapter, call.salt)
        else:
            crc = crc32(call.head.encode("utf-8", "surrogatepass"))
        return BlockedTokens(crc=crc, block_len=self._block_len, exact=exact)

    def _tokens(self, call: ParsedBody) -> tuple[bytes, bool]:
        """Tokens of the prompt; True if they are exactly the engine's."""
        document = call.document
        if call.endpoint.name == "completions":
            prompt, changed = document.get("prompt"), any(map(document.get, _OTHER_PROMPT))
            if call.tokens is not None:
                batch = isinstance(prompt, list) and isinstance(prompt[0], list) and len(prompt) > 1
                return call.tokens, not (batch or changed)
            if len(call.parts) == 1 and not changed:
                return self._text(call.parts[0], document), True
        elif call.endpoint.name == "chat" and self._template is not None:
            text = self._template.render(document)
            if text is not None:
                special = document.get("add_special_tokens", False)
                return self._text(text, {"add_special_tokens": special}), True
        return call.tokens if call.tokens is not None else self._parts(call.parts), False

    def _text(self, text: str, document: dict[str, Any]) -> bytes:
        tokens = self._encode(text)
        if document.get("add_special_tokens", True):
            return self._before + tokens + self._after
        return tokens

    def _encode(self, text: str) -> bytes:
        pieces = cut(text) if self._cuts else [text]
        return self.pieces.encode(pieces, self._encode_one)

    def _encode_one(self, text: str) -> bytes:
        return array("I", self._encoder.encode(text, add_special_tokens=False).ids).tobytes()

    def _parts(self, parts: Sequence[str]) -> bytes:
        """Tokens of all parts, with a separator before each, which no token spans."""
        return b"".join(_SEPARATOR + self._encode(part) for part in parts)

    def _added(self) -> tuple[bytes, bytes]:
        """Special tokens that the tokenizer adds before and after a text."""
        plain = self._encoder.encode("a", add_special_tokens=False).ids
        whole = self._encoder.encode("a", add_special_tokens=True).ids
        at = next((n for n in range(len(whole)) if whole[n : n + len(plain)] == plain), 0)
        before, after = whole[:at], whole[at + len(plain) :]
        return array("I", before).tobytes(), array("I", after).tobytes()

    def _has_wide_tokens(self) -> bool:
        """True if an added token contains a blank or line end, where a text may be cut."""
        added = self._encoder.get_added_tokens_decoder().values()
        return any(" " in token.content or "\n" in token.content for token in added)


def _load(folder: Path) -> Any:
    try:
        import tokenizers
    except ImportError:
        raise ConfigError(
            f"--tokenizer: needs tokenizers: {install_command('tokenizer')}"
        ) from None
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ConfigError(f"--tokenizer: {path}: no such file")
    try:
        encoder = tokenizers.Tokenizer.from_file(str(path))
    except Exception:  # noqa: BLE001 - the library raises nothing narrower
        raise ConfigError(f"--tokenizer: {path}: not a tokenizer") from None
    encoder.no_truncation()
    encoder.no_padding()
    return encoder


def _result(done: "asyncio.Future[T]") -> T | None:
    return None if done.exception() is not None else done.result()
