"""What is heard of an engine's answers, with a memory of those before and without."""

import re

from fairlead.gateway.answer_reader import AnswerReader, Head
from fairlead.gateway.repeated import Remembered

LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [^\r\n\0]*\r\n")


class Hearing(AnswerReader):
    """One connection and what is heard on it; asks again whenever an answer has ended."""

    def __init__(self, openings: tuple[Remembered[Head], Remembered[Head]] | None = None) -> None:
        super().__init__(openings or (Remembered(), Remembered()))
        self.heard: list[object] = []
        self._listener = self

    def on_head(self, head: Head) -> None:
        lines = b"".join(head.lines)
        assert b"".join(LINE.findall(lines)) == lines, lines
        assert head.status >= 100
        self.heard += [(head.status, lines, head.content_type, head.framed, head.keep_alive), b""]

    def on_data(self, data: bytes) -> None:
        self.heard[-1] += data  # type: ignore[operator]

    def on_end(self) -> None:
        self.heard.append("end")

    def on_lost(self, *, stale: bool) -> None:
        self.heard.append("lost")

    def abort(self) -> None:
        self._listener = None

    def _finish(self) -> None:
        self.on_end()
        self._reset()

    def _lose(self) -> None:
        self.on_lost(stale=False)
        self.abort()


class ParserOnly(Hearing):
    """The same without a memory."""

    def _learn(self, data: bytes) -> None:
        """Remembers nothing."""
