"""Reloads settings while the gateway runs: watches their files, and reads a change once it is complete."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from fairhit.errors import ConfigError
from fairhit.gateway.settings import LIVE, GatewaySettings
from fairhit.settings.declaration import settings_of

_log = logging.getLogger(__name__)

# Interval of checks. A file counts as changed when two checks in a row find the same new state.
INTERVAL_S = 1.0

# State of each file: modification time in ns, inode (differs if another file was moved there), size.
Stamp = tuple[tuple[int, int, int] | None, ...]


class Settled:
    """Detects when files have changed and are no longer being written. Pure."""

    def __init__(self, stamp: Stamp) -> None:
        self._read = stamp  # state when the files were last read
        self._seen = stamp

    def changed(self, stamp: Stamp) -> bool:
        """True if the files should be read: they differ from what was read, and two checks agree."""
        still, self._seen = stamp == self._seen, stamp
        if not still or stamp == self._read:
            return False
        self._read = stamp
        return True

    def was_read(self, stamp: Stamp) -> None:
        """Record that the files were read, as of `stamp`, without a change being noticed first."""
        self._read = self._seen = stamp


def stamp_of(paths: Sequence[Path]) -> Stamp:
    """State of each file; None if it does not exist."""
    found: list[tuple[int, int, int] | None] = []
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            found.append(None)
        else:
            found.append((status.st_mtime_ns, status.st_ino, status.st_size))
    return tuple(found)


def changed_while_running(
    old: GatewaySettings, wanted: GatewaySettings
) -> tuple[GatewaySettings, list[str]]:
    """`old` with those values of `wanted` that may change at run time, and their names; logs the others."""
    different = {
        name for name in settings_of(GatewaySettings) if getattr(old, name) != getattr(wanted, name)
    }
    if fixed := sorted(different - LIVE):
        listed = ", ".join(name.replace("_", "-") for name in fixed)
        _log.warning("settings: %s cannot change at run time; kept as before", listed)
    live = sorted(different & LIVE)
    return old.replaced(**{name: getattr(wanted, name) for name in live}), live


class Reloader:
    """Reads the settings again on request or when their files change, and applies them.

    If they cannot be read or are invalid, one line is logged and the old settings are kept.
    """

    def __init__(
        self,
        *,
        read: Callable[[], GatewaySettings],
        files: Sequence[Path],
        more_files: Callable[[], Sequence[Path]],
        apply: Callable[[GatewaySettings], None],
    ) -> None:
        self._read = read
        self._files = files  # of settings
        self._more_files = more_files  # that the settings name: keys, certificates
        self._apply = apply
        self._settled = Settled(self._stamp())

    def reload(self) -> None:
        """Read and apply the settings now."""
        self._settled.was_read(self._stamp())
        try:
            self._check_written()
            settings = self._read()
            self._apply(settings)
        except ConfigError as error:
            _log.warning("settings are kept as they are: %s", error)

    async def watch(self, interval_s: float = INTERVAL_S) -> None:
        """Reload whenever a file has changed, until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            if self._settled.changed(self._stamp()):
                self.reload()

    def _check_written(self) -> None:
        """Raise ConfigError if a file is empty: an editor may have truncated it to write it anew."""
        for path in self._files:
            try:
                empty = not path.read_bytes().strip()
            except OSError:
                continue  # reading the settings reports the problem
            if empty:
                raise ConfigError(f"{path}: is empty")

    def _stamp(self) -> Stamp:
        return stamp_of([*self._files, *self._more_files()])
