"""Names of clients as engines, their logs and their metrics can have them."""

import hashlib
import re
from typing import Final

from fairhit.core.request import ClientId

ANONYMOUS: Final[ClientId] = "anonymous"

# Long enough for a UUID with a prefix or an e-mail address; it becomes a metrics label.
MAX_CLIENT_LEN: Final = 128
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._:@/+=~-]")
# 64 bits: that two of a million names get the same is one in 37 million.
_DIGEST_LEN: Final = 16


def client_name(value: object) -> ClientId:
    """Return a value as a client's name: bounded, and safe in logs and metrics. Empty means anonymous.

    A name that is too long or has other characters keeps what it can and gets the begin of its SHA-256
    behind a `~`, so that two clients have two names. What was returned once is returned as it is.
    """
    if not isinstance(value, str | int) or isinstance(value, bool):
        return ANONYMOUS
    text = str(value)
    if len(text) <= MAX_CLIENT_LEN and not _NOT_IN_NAMES.search(text):
        return text or ANONYMOUS
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:_DIGEST_LEN]
    kept = _NOT_IN_NAMES.sub("_", text[: MAX_CLIENT_LEN - _DIGEST_LEN - 1])
    return f"{kept}~{digest}"
