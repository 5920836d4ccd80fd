"""Text -> tokens for the prefix index, in threads: opt-in, and never on the event loop.

With it the index counts what the engines count. Each part of a prompt is encoded by itself, so that
the tokens of a conversation's beginning are the beginning of its tokens.
"""

import asyncio
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from zlib import crc32

from fairlead.errors import ConfigError

# The library works without holding Python's lock; more threads than this would only take cores
# from the engines beside it.
_THREADS = 2
# Between the parts of a prompt; no vocabulary has this number.
_SEPARATOR = array("I", [0xFFFFFFFF]).tobytes()

# What to do with the tokens, or with what went wrong.
Then = Callable[[bytes | None], None]


class Tokenizer:
    """A model's own tokenizer, from its `tokenizer.json`. Raises ConfigError."""

    def __init__(self, folder: Path) -> None:
        try:
            import tokenizers
        except ImportError:
            raise ConfigError("--tokenizer: needs the package `tokenizers`") from None
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ConfigError(f"--tokenizer: {path}: no such file")
        try:
            self._encoder: Any = tokenizers.Tokenizer.from_file(str(path))
        except Exception:  # noqa: BLE001 - the library raises nothing narrower
            raise ConfigError(f"--tokenizer: {path}: not a tokenizer") from None
        self._encoder.no_truncation()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="tokenizer")

    def encode(self, parts: Sequence[str]) -> bytes:
        """The tokens of the parts, 4 bytes each, a separator before each part. O(text)."""
        encoded = self._encoder.encode_batch(list(parts), add_special_tokens=False)
        return b"".join(_SEPARATOR + array("I", one.ids).tobytes() for one in encoded)

    def submit(self, parts: Sequence[str], then: Then) -> "asyncio.Future[bytes]":
        """Encode in a thread; `then` gets the tokens on the event loop, None if that failed.

        Who cancels what is returned hears nothing, and what has not begun is not done.
        """
        loop = asyncio.get_running_loop()
        encoding = loop.run_in_executor(self._threads, self.encode, parts)
        encoding.add_done_callback(lambda done: None if done.cancelled() else then(_tokens(done)))
        return encoding

    def close(self) -> None:
        """Give up what has not begun."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def head_token(head: str) -> bytes:
    """What splits an engine's cache, as one token before all others."""
    return crc32(head.encode("utf-8", "surrogatepass")).to_bytes(4, "little")


def _tokens(done: "asyncio.Future[bytes]") -> bytes | None:
    return None if done.exception() is not None else done.result()
