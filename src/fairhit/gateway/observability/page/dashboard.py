"""The live page: three files of our own, served as they are, and the JSON they draw."""

from importlib.resources import files
from typing import NamedTuple

from fairhit.errors import BadRequest

# The page may load what is here, and talk to nobody else.
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


class File(NamedTuple):
    """A part of the page, with the headers it is sent with."""

    content_type: bytes
    body: bytes
    lines: tuple[bytes, ...]


def read_files() -> dict[bytes, File]:
    """The page by path. It shows nothing by itself, so that everybody may load it."""
    folder = files("fairhit.gateway.observability.page") / "web"
    return {
        path: File(kind, (folder / name).read_bytes(), _HEADERS)
        for path, (name, kind) in _FILES.items()
    }


def asked_since(target: bytes) -> int:
    """N of `?since=N`, 0 if it is not given. Raises BadRequest."""
    _, _, query = target.partition(b"?")
    for part in query.split(b"&"):
        name, _, value = part.partition(b"=")
        if name == b"since":
            if not value.isdigit() or len(value) > 12:
                raise BadRequest("since must be a number of a sample", param="since")
            return int(value)
    return 0
