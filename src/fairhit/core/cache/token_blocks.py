"""A prompt as chained blocks of tokens: the same key here and for what an engine says it has cached.

Engines name a block by a hash of their own making. Ours is made of what they all agree on, the token
numbers from the beginning of the prompt, so that a prompt and an engine's report of its cache meet
whatever the engine, its version and its seed. A key is a block's depth and the CRC-32 of all before its
end; what splits an engine's cache (adapter, cache salt) is where the chain begins.
"""

from typing import NamedTuple
from zlib import crc32

# A token's number as it is hashed and kept: what array("I") writes.
TOKEN_BYTES = 4
# Tokens of a block unless said otherwise: vLLM's default on GPUs.
BLOCK_LEN = 16
_CRC_BITS = 32
_CRC_MASK = (1 << _CRC_BITS) - 1


def chain_start(adapter: str = "", salt: str = "") -> int:
    """Where the chain of a prompt begins: adapters and salts have caches of their own. O(names)."""
    return crc32(f"{adapter}\0{salt}".encode("utf-8", "surrogatepass"))


class BlockedTokens(NamedTuple):
    """Tokens as the keys of their full blocks, and what fills none yet.

    The keys of a prefix are a prefix of the keys. Where the tokens are not `exact`, not those that an
    engine will see, they are in a name space of their own, below zero: no engine can confirm them.
    """

    crc: int = chain_start()  # of all up to the last full block
    chunks: tuple[int, ...] = ()
    tail: bytes = b""
    block_len: int = BLOCK_LEN  # in tokens
    exact: bool = True

    @property
    def length(self) -> int:
        """How many tokens there are. O(1)."""
        return len(self.chunks) * self.block_len + len(self.tail) // TOKEN_BYTES

    @property
    def reusable(self) -> tuple[int, ...]:
        """The blocks before the last token, which engines always compute anew. O(blocks)."""
        return self.chunks if self.tail or not self.chunks else self.chunks[:-1]

    def extended(self, more: bytes) -> "BlockedTokens":
        """The tokens with `more`, four bytes each, after them. O(more + blocks so far)."""
        data = self.tail + more if self.tail else more
        size, crc, depth = self.block_len * TOKEN_BYTES, self.crc, len(self.chunks)
        added = []
        for end in range(size, len(data) + 1, size):
            crc = crc32(data[end - size : end], crc)
            added.append(block_key(depth, crc) if self.exact else ~block_key(depth, crc))
            depth += 1
        left = data[len(added) * size :]
        return self._replace(crc=crc, chunks=(*self.chunks, *added), tail=left)


def block_key(depth: int, crc: int) -> int:
    """The key of the block at `depth`, counted from 0, with `crc` of all up to its end."""
    return depth << _CRC_BITS | crc & _CRC_MASK
