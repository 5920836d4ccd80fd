"""API keys of clients: only their SHA-256 digests are kept, and keys are looked up by digest.

The time of a lookup reveals nothing about a key: hashing depends on the key's length alone, and a caller
who cannot choose the bytes of a digest learns nothing from how many of them matched. A fast hash suffices,
because keys are long and random: slow hashes protect short passwords, and would cost every request.
"""

import re
from hashlib import sha256
from typing import Final

from fairhit.core.request import ClientId
from fairhit.errors import ConfigError

# Long enough for any id in use, short enough for a metric label and for every request body.
MAX_CLIENT_LEN = 256
_HASHED: Final = "sha256:"
_HEX = re.compile("[0-9a-f]{64}")


def is_client_id(text: str) -> bool:
    """True if `text` is a valid name of a client: printable, not empty, not too long."""
    return 0 < len(text) <= MAX_CLIENT_LEN and text.isprintable()


def digest_of(key: bytes) -> bytes:
    """Digest under which a key is kept. Takes about a microsecond."""
    return sha256(key).digest()


# The digest of the empty key, which no client has.
_OF_EMPTY: Final = digest_of(b"")


def parse_tenant_key(text: str, *, where: str) -> tuple[ClientId, bytes]:
    """Parse `TENANT:KEY` or `TENANT:sha256:HEX` into the client and the digest of its key.

    Raises ConfigError, with a message that never repeats the key.
    """
    client, colon, key = text.strip().partition(":")
    if not colon or not is_client_id(client):
        raise ConfigError(f"{where}: expected TENANT:KEY or TENANT:sha256:HEX")
    if key.startswith(_HASHED):
        hexadecimal = key.removeprefix(_HASHED).lower()
        if not _HEX.fullmatch(hexadecimal) or hexadecimal == _OF_EMPTY.hex():
            raise ConfigError(
                f"{where}: expected 64 hexadecimal digits after sha256:, of a key that is not empty"
            )
        return client, bytes.fromhex(hexadecimal)
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(f"{where}: expected a key of printable ASCII without blanks")
    return client, digest_of(key.encode())


def hashed_line(text: str, *, where: str) -> str:
    """`text` with its key replaced by the digest. Raises ConfigError."""
    client, digest = parse_tenant_key(text, where=where)
    return f"{client}:{_HASHED}{digest.hex()}"


def shown_digest(authorization: bytes, api_key: bytes) -> bytes:
    """Digest of a request's key, from `authorization` or else Anthropic's `x-api-key`; empty without one.

    The scheme's name is case-insensitive, and blanks may follow it. A scheme other than Bearer gives the
    digest of the empty key, which matches no client.
    """
    if not authorization:
        return digest_of(api_key) if api_key else b""
    scheme, _, key = authorization.partition(b" ")
    return digest_of(key.strip()) if scheme.lower() == b"bearer" else _OF_EMPTY
