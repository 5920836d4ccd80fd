"""Settings that change under a running gateway: files watched, a change read once it is whole."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from fairlead.errors import ConfigError
from fairlead.gateway.settings import LIVE, GatewaySettings
from fairlead.settings.declaration import settings_of

_log = logging.getLogger(__name__)

# How often files are looked at. A file counts as changed when two looks agree on what it is.
INTERVAL_S = 1.0

# Of each file: time of the last change in ns, number on its disk (another one was moved there), size.
Stamp = tuple[tuple[int, int, int] | None, ...]


class Settled:
    """Tells when files have changed and lie still. Pure."""

    def __init__(self, stamp: Stamp) -> None:
        self._read = stamp  # what was there when they were last read
        self._seen = stamp

    def changed(self, stamp: Stamp) -> bool:
        """Whether they are to be read: they differ from what was read, and two looks agree."""
        still, self._seen = stamp == self._seen, stamp
        if not still or stamp == self._read:
            return False
        self._read = stamp
        return True

    def was_read(self, stamp: Stamp) -> None:
        """They have been read for another reason."""
        self._read = self._seen = stamp


def stamp_of(paths: Sequence[Path]) -> Stamp:
    """What distinguishes the files from what they were; None for one that is not there."""
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
    """`old` with what of `wanted` may change under way, and which settings do; the others are named."""
    different = {
        name for name in settings_of(GatewaySettings) if getattr(old, name) != getattr(wanted, name)
    }
    if fixed := sorted(different - LIVE):
        listed = ", ".join(name.replace("_", "-") for name in fixed)
        _log.warning("settings: %s cannot change while it runs, and stays as it was", listed)
    live = sorted(different & LIVE)
    return old.replaced(**{name: getattr(wanted, name) for name in live}), live


class Reloader:
    """Reads the settings again when told to, or when their files change, and has them applied.

    What cannot be read, or is wrong, is said in one line; the old settings then stay.
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
        """Read and apply, now."""
        self._settled.was_read(self._stamp())
        try:
            self._check_written()
            settings = self._read()
            self._apply(settings)
        except ConfigError as error:
            _log.warning("settings are kept as they are: %s", error)

    async def watch(self, interval_s: float = INTERVAL_S) -> None:
        """Do so whenever a file has changed, for ever."""
        while True:
            await asyncio.sleep(interval_s)
            if self._settled.changed(self._stamp()):
                self.reload()

    def _check_written(self) -> None:
        """Whoever truncates a file to write it anew does not mean that there are no engines."""
        for path in self._files:
            try:
                empty = not path.read_bytes().strip()
            except OSError:
                continue  # reading the settings will say what is wrong
            if empty:
                raise ConfigError(f"{path}: is empty")

    def _stamp(self) -> Stamp:
        return stamp_of([*self._files, *self._more_files()])
