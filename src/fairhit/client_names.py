"""Client names that are safe in engines, logs and metrics."""

import hashlib
import re
from typing import Final

from fairhit.core.request import ClientId

ANONYMOUS: Final[ClientId] = "anonymous"

# Long enough for a UUID with a prefix or an e-mail address; it becomes a metrics label.
MAX_CLIENT_LEN: Final = 128
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._:@/+=~-]")
# 64 bits: two of a million names collide with a probability of one in 37 million.
_DIGEST_LEN: Final = 16


def client_name(value: object) -> ClientId:
    """Return a value as a client's name: bounded, and safe in logs and metrics. Empty means anonymous.

    A name that is too long or has other characters is cut and cleaned, and gets `~` and the first digits of
    its SHA-256, so that different clients keep different names. Idempotent.
    """
    if not isinstance(value, str | int) or isinstance(value, bool):
        return ANONYMOUS
    text = str(value)
    if len(text) <= MAX_CLIENT_LEN and not _NOT_IN_NAMES.search(text):
        return text or ANONYMOUS
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:_DIGEST_LEN]
    kept = _NOT_IN_NAMES.sub("_", text[: MAX_CLIENT_LEN - _DIGEST_LEN - 1])
    return f"{kept}~{digest}"
