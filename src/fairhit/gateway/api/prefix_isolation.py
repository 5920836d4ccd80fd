"""A prefix cache for each client (`--isolate-prefixes`): nobody learns from it what others have asked.

Where clients share a prefix cache, a prompt that is answered sooner than it should, or that is
reported as cached, has been asked by somebody before. With a salt in `cache_salt`, which vLLM and
SGLang both know, engines find only what the same salt has left there. The salt is an HMAC: to choose
another client's one would need the gateway's secret.
"""

import hmac
import secrets
from functools import lru_cache

from fairhit.core.request import ClientId

# Clients whose salts are kept ready.
_READY = 4096
_SECRET_LEN = 32


class PrefixIsolation:
    """Makes the salts. `secret` None: one of its own, so that others and restarts have other salts."""

    def __init__(self, secret: str | None) -> None:
        key = secret.encode() if secret is not None else secrets.token_bytes(_SECRET_LEN)

        @lru_cache(_READY)
        def salt_of(client: ClientId, own: str) -> str:
            # No client's name has a NUL, so that no two pairs are the same bytes.
            message = f"{client}\0{own}".encode("utf-8", "surrogatepass")
            return hmac.digest(key, message, "sha256").hex()

        self._salt_of = salt_of

    def salt(self, client: ClientId, own: str) -> str:
        """64 hexadecimal digits; `own` is what the client asks to be split by itself. A few microseconds,
        and less for who has asked before.
        """
        return self._salt_of(client, own)
