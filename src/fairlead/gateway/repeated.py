"""Heads that come again: what a parser made of one holds for the same bytes with another length.

A client says the same about itself with every request, and an engine with every answer; only the
number after `content-length` differs. A head is remembered once the parser has read it in full, and
then is recognised by comparing bytes. Nothing is accepted here that the parser has not accepted
before, byte for byte, but for the digits of that one number: there is no second grammar to disagree
with the first, which is what request smuggling lives on.
"""

import re
from typing import Final, Generic, TypeVar

Meaning = TypeVar("Meaning")

# The only head that is remembered is one whose every line ends in CRLF and that has one length, of
# plain digits. 15 digits are below any limit of any parser.
_MAX_DIGITS: Final = 15
# Unknown heads between two that are looked at, where none has come again.
_MAX_WAIT = 63
# Callers' heads that are remembered, a kilobyte each. A head is a client on a route.
_MAX_HEADS = 2048
# Longer ones are not: 2,048 that nobody else sends, as long as they may be, would take 256 MiB.
_MAX_KNOWN_HEAD = 4 << 10
_MAX_HEADS_WAIT = 64 * _MAX_HEADS
# As clients write them; others are parsed.
_SPELLINGS: Final = (b"\r\ncontent-length: ", b"\r\nContent-Length: ")
_SPELLING_LEN: Final = len(_SPELLINGS[0])
_LENGTH = re.compile(rb"\r\ncontent-length: ([0-9]{1,15})\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: chunked\r\n", re.IGNORECASE)
# With one of these a message is more than its head and so many bytes.
_UNUSUAL = re.compile(rb"\r\n(?:expect|upgrade|trailer|transfer-encoding)[ \t]*:", re.IGNORECASE)
_LENGTHS = re.compile(rb"\r\ncontent-length[ \t]*:", re.IGNORECASE)


class RepeatedHead:
    """The bytes of a head before its length and after it."""

    __slots__ = ("_after", "_before", "_before_len", "came_again", "chunked")

    def __init__(self, before: bytes, after: bytes, *, chunked: bool) -> None:
        self._before = before
        self._before_len = len(before)
        self._after = after
        self.chunked = chunked  # instead of a length
        self.came_again = False

    def body_at(self, data: bytes) -> int:
        """Where the body begins if `data` opens with this head, else 0. O(head)."""
        if not data.startswith(self._before):
            return 0
        if self.chunked:
            self.came_again = True
            return self._before_len
        begin = self._before_len
        end = data.find(b"\r", begin, begin + _MAX_DIGITS + 1)
        if end < 0 or not data.startswith(self._after, end) or not data[begin:end].isdigit():
            return 0
        self.came_again = True
        return end + len(self._after)

    def without_length(self) -> bytes:
        """The head but for its digits."""
        return self._before + self._after

    def length(self, data: bytes, body_at: int) -> int:
        """The length that the head says, where it has one. O(1)."""
        return int(data[self._before_len : body_at - len(self._after)])


def repeatable(data: bytes) -> RepeatedHead | None:
    """The head that `data` opens with, if it is of the usual shape. O(head).

    For who has had all of it accepted by a parser, as one message whose head is complete.
    """
    end = data.find(b"\r\n\r\n") + 4
    if end == 3:
        return None
    head = data[:end]
    if not _is_plain(head) or len(_LENGTHS.findall(head)) > 1:
        return None
    length = _LENGTH.search(head)
    if length is not None and not _UNUSUAL.search(head):
        return RepeatedHead(head[: length.start(1)], head[length.end(1) :], chunked=False)
    if length is None and not _LENGTHS.search(head) and _CHUNKED.search(head):
        if len(_UNUSUAL.findall(head)) == 1:
            return RepeatedHead(head, b"", chunked=True)
    return None


def _is_plain(head: bytes) -> bool:
    """Whether every line ends in CRLF and none goes on in the next."""
    lines = head.count(b"\r\n")
    if not lines == head.count(b"\r") == head.count(b"\n"):
        return False
    return b"\n " not in head and b"\n\t" not in head


class Remembered(Generic[Meaning]):
    """The head that came last, and what a parser made of it."""

    __slots__ = ("_skip", "_wait", "head", "meaning")

    def __init__(self) -> None:
        self.head: RepeatedHead | None = None
        self.meaning: Meaning | None = None
        self._skip = self._wait = 0

    def learn(self, data: bytes, meaning: Meaning) -> None:
        """`data` opened with another head, which means this. O(head), and O(1) after a while where
        each is new, since remembering them is in vain.
        """
        if self.head is None or self.head.came_again:
            self._skip = self._wait = 0
        elif self._skip:
            self._skip -= 1
            return
        else:
            self._skip = self._wait = min(2 * self._wait + 1, _MAX_WAIT)
        head = repeatable(data)
        if head is not None:
            self.head, self.meaning = head, meaning


class KnownHead(Generic[Meaning]):
    """A head, and what a parser made of it."""

    __slots__ = ("head", "meaning")

    def __init__(self, head: RepeatedHead, meaning: Meaning) -> None:
        self.head = head
        self.meaning = meaning


class KnownHeads(Generic[Meaning]):
    """What a parser made of callers' heads, over all connections: proxies send many clients over one.

    A head is found by its bytes without the digits of its length. Cut at the first of a spelling,
    no two heads that differ elsewhere are the same without their digits.
    """

    __slots__ = ("_known", "_limit", "_skip", "_wait")

    def __init__(self, limit: int = _MAX_HEADS) -> None:
        self._limit = limit
        self._known: dict[bytes, KnownHead[Meaning]] = {}
        self._skip = self._wait = 0

    def find(
        self, data: bytes, last: KnownHead[Meaning] | None = None
    ) -> tuple[KnownHead[Meaning], int, int] | None:
        """The head that `data` opens with, where its body begins and how long it is; None if it is not
        known. `last` is looked at first: most connections are one client's. O(head).
        """
        if last is not None:
            body_at = last.head.body_at(data)
            if body_at:
                return last, body_at, last.head.length(data, body_at)
        end = data.find(b"\r\n\r\n") + 4
        for spelling in _SPELLINGS:
            at = data.find(spelling, 0, end) + _SPELLING_LEN
            if at >= _SPELLING_LEN:
                stop = data.find(b"\r", at, at + _MAX_DIGITS + 1)
                known = self._known.get(data[:at] + data[stop:end]) if stop >= 0 else None
                digits = data[at:stop]
                if known is None or not digits.isdigit():
                    return None
                known.head.came_again = True
                return known, end, int(digits)
        return None

    def learn(self, data: bytes, meaning: Meaning) -> None:
        """`data` opened with a head that means this. O(head), and less where most are new."""
        if self._skip:
            self._skip -= 1
            return
        head = repeatable(data)
        if head is None or head.chunked or len(head.without_length()) > _MAX_KNOWN_HEAD:
            return
        if len(self._known) >= self._limit:
            self._forget()
        self._known[head.without_length()] = KnownHead(head, meaning)

    def _forget(self) -> None:
        """Make room: keep what came again, unless that is most of it. O(limit)."""
        again = {key: one for key, one in self._known.items() if one.head.came_again}
        if 2 * len(again) < self._limit:
            self._known = again
            self._wait = min(2 * self._wait + self._limit, _MAX_HEADS_WAIT)
        else:
            self._known, self._wait = {}, 0
        self._skip = self._wait
        for one in again.values():
            one.head.came_again = False

    def __len__(self) -> int:
        return len(self._known)
