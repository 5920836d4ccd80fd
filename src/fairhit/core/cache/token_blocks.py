"""A prompt as chained keys of token blocks, the same for a prompt and for an engine's cache events.

Each engine names blocks by hashes of its own. The keys here depend only on the token numbers from the
beginning of the prompt, so that a prompt matches an event of any engine, version and hash seed. A key is the
block's depth and the CRC-32 of all tokens up to its end; adapter and cache salt, which split an engine's
cache, are the first value of the chain.
"""

from typing import NamedTuple
from zlib import crc32

# Bytes of a token number as hashed and stored: the item size of array("I").
TOKEN_BYTES = 4
# Default tokens of a block: vLLM's on GPUs.
BLOCK_LEN = 16
_CRC_BITS = 32
_CRC_MASK = (1 << _CRC_BITS) - 1


def chain_start(adapter: str = "", salt: str = "") -> int:
    """Return the first value of a prompt's chain; each adapter and salt has a cache of its own. O(names)."""
    return crc32(f"{adapter}\0{salt}".encode("utf-8", "surrogatepass"))


class BlockedTokens(NamedTuple):
    """Tokens as the keys of their full blocks, and the tokens of the last block if it is not full.

    The keys of a prefix are a prefix of the keys. Tokens that may differ from the engine's (not `exact`) have
    keys below zero, which no cache event can confirm.
    """

    crc: int = chain_start()  # of all tokens up to the end of the last full block
    chunks: tuple[int, ...] = ()
    tail: bytes = b""
    block_len: int = BLOCK_LEN  # in tokens
    exact: bool = True

    @property
    def length(self) -> int:
        """Number of tokens. O(1)."""
        return len(self.chunks) * self.block_len + len(self.tail) // TOKEN_BYTES

    @property
    def reusable(self) -> tuple[int, ...]:
        """Keys of the blocks before the last token, which engines always compute. O(blocks)."""
        return self.chunks if self.tail or not self.chunks else self.chunks[:-1]

    def extended(self, more: bytes) -> "BlockedTokens":
        """Return the tokens followed by `more`, four bytes each. O(more + blocks so far)."""
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
    """Return the key of the block at `depth`, from 0, with the `crc` of all tokens up to its end."""
    return depth << _CRC_BITS | crc & _CRC_MASK
