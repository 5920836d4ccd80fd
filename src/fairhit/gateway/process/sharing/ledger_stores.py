"""Stores of the shared ledger: memory that the processes of one machine share, or Redis."""

import asyncio
import fcntl
import os
import re
from collections.abc import Callable
from typing import Protocol

from fairhit.errors import ConfigError, FairhitError
from fairhit.installing import install_command

# The stored bytes, None for nothing -> the bytes to store.
Change = Callable[[bytes | None], bytes]

# Longest duration of an exchange: a store that hangs counts as failed.
TIMEOUT_S = 1.0
# Attempts before the change is left to the next exchange.
_TRIES = 8
_LOCK_WAIT_S = 0.001
# Redis drops a ledger that no gateway has changed for so long.
_EXPIRES_MS = 600_000


class Busy(FairhitError):
    """Other gateways changed the value in every attempt. Nothing was written."""


class Store(Protocol):
    """A value that several gateways change, one after another."""

    async def change(self, change: Change) -> None:
        """Read, change and write atomically; `change` may run repeatedly. Raises Busy or OSError."""
        ...

    async def close(self) -> None:
        """Release the store's resources."""
        ...


class SharedMemory:
    """An anonymous file in memory, inherited by forked processes.

    The lock belongs to the process: it is released if the process dies while it writes.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def create(cls) -> "SharedMemory":
        """Create an empty one."""
        return cls(os.memfd_create("fairhit-account"))

    async def change(self, change: Change) -> None:
        """See `Store`; the event loop is blocked for as long as `change` takes."""
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
        raise Busy("the shared ledger is locked")

    async def close(self) -> None:
        """Keep the file: other processes use it."""


class InRedis:
    """A key in Redis or a compatible server, changed by optimistic transactions."""

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
            # Validates the TLS options now; the client would do so when it connects.
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
        raise Busy("other gateways changed the shared ledger in every attempt")

    async def close(self) -> None:
        """Close the connection."""
        await self._client.aclose()
