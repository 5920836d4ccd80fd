"""The dashboard: its static files, and the samples of the last ten minutes that it draws."""

from collections import deque
from collections.abc import Mapping
from importlib.resources import files
from itertools import islice
from typing import NamedTuple

import orjson

from fairhit.errors import BadRequest

# The page loads nothing from elsewhere and connects to this gateway alone.
_POLICY = (
    b"content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; "
    b"connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    b"frame-ancestors 'none'\r\n"
)
_HEADERS = (_POLICY, b"x-content-type-options: nosniff\r\n", b"cache-control: no-cache\r\n")
_FILES = {
    b"/dashboard": ("page.html", b"text/html; charset=utf-8"),
    b"/dashboard/page.js": ("page.js", b"text/javascript; charset=utf-8"),
    b"/dashboard/page.css": ("page.css", b"text/css; charset=utf-8"),
}
DATA = b"/dashboard/data"
# Samples kept, one a second.
KEPT = 600


class File(NamedTuple):
    """A static file and its response headers."""

    content_type: bytes
    body: bytes
    lines: tuple[bytes, ...]


def read_files() -> dict[bytes, File]:
    """Static files by path. They hold no numbers, so that they need no key."""
    folder = files("fairhit.gateway.observability.page") / "web"
    return {
        path: File(kind, (folder / name).read_bytes(), _HEADERS)
        for path, (name, kind) in _FILES.items()
    }


def requested_since(target: bytes) -> int:
    """N of `?since=N`, 0 if not given. Raises BadRequest."""
    _, _, query = target.partition(b"?")
    for part in query.split(b"&"):
        name, _, value = part.partition(b"=")
        if name == b"since":
            if not value.isdigit() or len(value) > 12:
                raise BadRequest("since must be a number of a sample", param="since")
            return int(value)
    return 0


class SampleHistory:
    """The newest samples, numbered from 1, each serialised once however often it is read."""

    def __init__(self, kept: int = KEPT) -> None:
        assert kept >= 1, kept
        self._lines: deque[bytes] = deque(maxlen=kept)
        self.last = 0  # number of the newest sample

    def add(self, sample: Mapping[str, object]) -> None:
        """Append a sample; beyond the limit the oldest is dropped. O(sample)."""
        self.last += 1
        self._lines.append(orjson.dumps({"n": self.last, **sample}))

    def since(self, number: int) -> bytes:
        """Samples after `number`, oldest first, as a JSON list. O(result)."""
        first = self.last - len(self._lines)
        lines = islice(self._lines, max(0, number - first), None)
        return b"[" + b",".join(lines) + b"]"
