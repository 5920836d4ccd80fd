"""Callers' API keys: only their SHA-256 digests are kept, and what is shown is looked up by its digest.

No time that this takes tells anything about a key. Hashing depends on a key's length alone; the
look-up compares digests, and who cannot choose a digest's bytes learns nothing from how many of them
matched. A fast hash is enough, because keys are long and random: a slow one protects passwords that
could be guessed, and would cost every request.
"""

import re
from hashlib import sha256
from typing import Final

from fairhit.core.request import ClientId
from fairhit.errors import ConfigError

# Long enough for any id in use, short enough to be a metric label and to sit in every body.
MAX_CLIENT_LEN = 256
_HASHED: Final = "sha256:"
_HEX = re.compile("[0-9a-f]{64}")


def is_client_id(text: str) -> bool:
    """Whether `text` can name a client: printable and neither empty nor very long."""
    return 0 < len(text) <= MAX_CLIENT_LEN and text.isprintable()


def digest_of(key: bytes) -> bytes:
    """What is kept of a key. About a microsecond."""
    return sha256(key).digest()


# No key is empty, and so nobody may be given the digest of nothing.
_OF_NOTHING: Final = digest_of(b"")


def parse_tenant_key(text: str, *, where: str) -> tuple[ClientId, bytes]:
    """The client and its key's digest, of `TENANT:KEY` or `TENANT:sha256:HEX`.

    The message never repeats the key. Raises ConfigError.
    """
    client, colon, key = text.strip().partition(":")
    if not colon or not is_client_id(client):
        raise ConfigError(f"{where}: expected TENANT:KEY or TENANT:sha256:HEX")
    if key.startswith(_HASHED):
        hexadecimal = key.removeprefix(_HASHED).lower()
        if not _HEX.fullmatch(hexadecimal) or hexadecimal == _OF_NOTHING.hex():
            raise ConfigError(
                f"{where}: expected 64 hexadecimal digits after sha256:, of a key that is not empty"
            )
        return client, bytes.fromhex(hexadecimal)
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(f"{where}: expected a key of printable ASCII without blanks")
    return client, digest_of(key.encode())


def hashed_line(text: str, *, where: str) -> str:
    """The same line with the key hashed, if it is not. Raises ConfigError."""
    client, digest = parse_tenant_key(text, where=where)
    return f"{client}:{_HASHED}{digest.hex()}"


def shown_digest(authorization: bytes, api_key: bytes) -> bytes:
    """The digest of the key that a request shows in either header; empty if it shows none.

    Anthropic's header counts where there is none of HTTP's own. A scheme's name is case-insensitive,
    and blanks may follow it; what is no bearer's key has the digest of nothing, which nobody has.
    """
    if not authorization:
        return digest_of(api_key) if api_key else b""
    scheme, _, key = authorization.partition(b" ")
    return digest_of(key.strip()) if scheme.lower() == b"bearer" else _OF_NOTHING
