"""Splits text into pieces that are tokenized independently, and caches the tokens of each.

Tokenizers split text into words before they make tokens, so that a cut between two words changes nothing:
the tokens of the pieces are the tokens of the text. Some vocabularies treat the beginning of a text
specially; a check at the start detects these, and texts then stay whole.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock

# Before the blank between two words, and after a line end: all pre-tokenizers split words there.
_CUT = re.compile(r"(?<=[A-Za-z])(?= [A-Za-z])|(?<=[A-Za-z.,;:]\n)(?=[A-Za-z])")
# Minimum characters of a piece. The last piece ends with the text and is encoded each time.
_PIECE = 2048

Encode = Callable[[str], bytes]

SAMPLE = (
    "The quick brown fox, it's said, jumps over 1,234 lazy dogs.\n\nA list:\n- one\n- two  three\n"
    "def f(x):\n    return [x ** 2 for _ in range(10)]  # so\nÄpfel und Öl; naïve café.\n"
    "Привет, мир! 你好,世界。\nEND of it. don't I'm we'll\n\tTabs\tand   blanks \n x y z 🙂 a b\n"
) * 2


def cut(text: str, *, piece: int = _PIECE) -> list[str]:
    """Split `text`; a prefix of it has the same pieces, except for its last one. O(text)."""
    pieces, start = [], 0
    while len(text) - start > piece:
        found = _CUT.search(text, start + piece)
        if found is None:
            break
        pieces.append(text[start : found.start()])
        start = found.start()
    pieces.append(text[start:])
    return pieces


def is_cuttable(encode: Encode, sample: str = SAMPLE) -> bool:
    """True if the tokens of the pieces of `sample` are the tokens of `sample`. O(sample)."""
    pieces = cut(sample, piece=1)
    assert len(pieces) > 20, "the sample has many cuts"
    return b"".join(map(encode, pieces)) == encode(sample)


class PieceCache:
    """LRU cache of tokens by piece; `capacity` limits text and tokens together, in bytes."""

    def __init__(self, *, capacity: int) -> None:
        self._capacity = capacity
        self._known: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0
        self._lock = Lock()
        self.hits = 0  # characters found
        self.misses = 0  # characters encoded

    def encode(self, pieces: Sequence[str], encode: Encode) -> bytes:
        """Tokens of all `pieces`; those that are not cached are encoded. O(text)."""
        tokens = []
        for piece in pieces:
            found = self._get(piece)
            if found is None:
                found = encode(piece)
                self._put(piece, found)
            tokens.append(found)
        return b"".join(tokens)

    def size(self) -> int:
        """Bytes in the cache. O(1)."""
        return self._size

    def check(self) -> None:
        """Assert every invariant. O(cache)."""
        with self._lock:
            assert self._size == sum(_weight(*item) for item in self._known.items())
            assert self._size <= self._capacity or len(self._known) == 1

    def _get(self, piece: str) -> bytes | None:
        with self._lock:
            found = self._known.get(piece)
            if found is not None:
                self._known.move_to_end(piece)
                self.hits += len(piece)
            else:
                self.misses += len(piece)
            return found

    def _put(self, piece: str, tokens: bytes) -> None:
        weight = _weight(piece, tokens)
        with self._lock:
            if piece in self._known or weight > self._capacity:
                return
            self._known[piece] = tokens
            self._size += weight
            while self._size > self._capacity:
                self._size -= _weight(*self._known.popitem(last=False))


def _weight(piece: str, tokens: bytes) -> int:
    """Approximate bytes of an entry: a character takes one to four."""
    return len(piece) + len(tokens) + 200
