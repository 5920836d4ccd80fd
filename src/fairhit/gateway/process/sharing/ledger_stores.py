"""Where the account lies: in memory that processes of one machine share, or in Redis."""

import asyncio
import fcntl
import os
import re
from collections.abc import Callable
from typing import Protocol

from fairhit.errors import ConfigError, FairhitError
from fairhit.installing import install_command

# What was there, None for nothing -> what is to be there.
Change = Callable[[bytes | None], bytes]

# How long an exchange may take: a store that hangs is one that fails.
TIMEOUT_S = 1.0
# Others were quicker so many times: the next exchange will do.
_TRIES = 8
_LOCK_WAIT_S = 0.001
# Nobody has used it for so long: what it says is of no use any more, and Redis drops it.
_EXPIRES_MS = 600_000


class Busy(FairhitError):
    """Others changed it all the time. Nothing was written."""


class Store(Protocol):
    """One value that many change, one after another."""

    async def change(self, change: Change) -> None:
        """Read, change, write, with nobody between; `change` may run again. Raises Busy or OSError."""
        ...

    async def close(self) -> None:
        """Let go of what it holds."""
        ...


class SharedMemory:
    """A file in memory without a name, which processes that were forked have in common.

    The lock is the process's: one that dies while it writes lets go of it.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def create(cls) -> "SharedMemory":
        """A new one, which is empty."""
        return cls(os.memfd_create("fairhit-account"))

    async def change(self, change: Change) -> None:
        """See `Store`; while it is changed the event loop waits, which takes as long as `change`."""
        for _ in range(_TRIES):
            try:
                fcntl.lockf(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                await asyncio.sleep(_LOCK_WAIT_S)
                continue
            try:
                size = os.fstat(self.descriptor).st_size
                written = change(os.pread(self.descriptor, size, 0) or None)
                os.ftruncate(self.descriptor, 0)
                os.pwrite(self.descriptor, written, 0)
            finally:
                fcntl.lockf(self.descriptor, fcntl.LOCK_UN)
            return
        raise Busy("the account is locked")

    async def close(self) -> None:
        """Others go on with it."""


class InRedis:
    """A key in Redis, or what speaks its protocol, changed only by who has seen its last value."""

    def __init__(self, url: str, key: str) -> None:
        try:
            from redis import asyncio as redis
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
            from redis.exceptions import RedisError, WatchError
        except ImportError:
            raise ConfigError(f"--share-url: needs redis: {install_command('redis')}") from None
        self._key = f"{key}:account"
        self._failed, self._changed = RedisError, WatchError
        try:
            self._client = redis.Redis.from_url(
                url,
                socket_timeout=TIMEOUT_S,
                socket_connect_timeout=TIMEOUT_S,
                retry=Retry(NoBackoff(), 0),  # the next exchange is the retry
            )
            # Its options of TLS are looked at when it connects, which is too late.
            connection = self._client.connection_pool.make_connection()  # type: ignore[no-untyped-call]
            if (tls := getattr(connection, "ssl_context", None)) is not None:
                tls.get()
        except (TypeError, ValueError, OSError, RedisError) as error:
            unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
            reason = f"there is no option {unknown[1]!r}" if unknown else str(error)
            if isinstance(error, OSError):
                reason = f"its certificates: {error.strerror or error}"
            raise ConfigError(f"--share-url: {reason}") from None

    async def change(self, change: Change) -> None:
        """See `Store`."""
        try:
            async with self._client.pipeline(transaction=True) as pipe:
                for _ in range(_TRIES):
                    await pipe.watch(self._key)
                    was = await pipe.get(self._key)
                    assert not isinstance(was, str), "as no encoding is asked for"
                    written = change(was)
                    pipe.multi()  # type: ignore[no-untyped-call]
                    pipe.set(self._key, written, px=_EXPIRES_MS)
                    try:
                        await pipe.execute()
                    except self._changed:
                        continue
                    return
        except self._failed as error:
            raise OSError(f"{type(error).__name__}: {error}") from None
        raise Busy("others change the account all the time")

    async def close(self) -> None:
        """Close the connection."""
        await self._client.aclose()
