"""The cache of outcomes: one packed file per case and seed, found by its key.

A damaged file counts as missing, and a full disk as no cache: neither fails a run.
"""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from fairhit.errors import ConfigError, in_words
from fairhit_lab.runner.record import Record, unpacked

SUFFIX = ".json.zst"
# Enough for hundreds of full runs; the least recently used files are deleted first.
MAX_BYTES = 2 << 30
SECONDS = "seconds.json"
MAX_SECONDS = 20_000  # configurations whose time is kept


def default_folder(environment: Mapping[str, str] | None = None) -> Path:
    """The cache folder below XDG_CACHE_HOME, else below ~/.cache."""
    environment = os.environ if environment is None else environment
    home = environment.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "fairhit" / "experiments"


class Cache:
    """A folder of records; `say` receives one message each about a damaged file and about a failed write.

    Several runs may share it: each file is written beside its name first. Raises ConfigError if the
    folder cannot be created or written.
    """

    def __init__(
        self, folder: Path, *, say: Callable[[str], None], max_bytes: int = MAX_BYTES
    ) -> None:
        self.folder = folder
        self._warn = say
        self._warned: set[str] = set()
        self._max_bytes = max_bytes
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._write("probe", b"")
            (folder / "probe").unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(f"--cache: {in_words(error)} (--no-cache does without)") from None
        self._seconds: dict[str, float] = self._known()

    def get(self, key: str) -> Record | None:
        """The record under this key, marked as used; None if missing or damaged."""
        path = self._path(key)
        try:
            record = unpacked(path.read_bytes())
            os.utime(path)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            self._warn_once(
                "damaged", f"{path.name} in {self.folder} is damaged and run again: {error}"
            )
            return None
        return record

    def put(self, key: str, content: bytes, *, config: str, cpu_s: float) -> None:
        """Keep a packed record, and the CPU time of its configuration."""
        self._seconds[config] = round(cpu_s, 3)
        try:
            self._write(self._path(key).name, content)
        except OSError as error:
            self._warn_once("full", f"the cache cannot be written: {in_words(error)}")

    def seconds(self, config: str) -> float | None:
        """The last CPU time of a case of this configuration."""
        return self._seconds.get(config)

    def close(self) -> None:
        """Write the times, and delete the least recently used files beyond the size limit. O(files)."""
        newest = dict(list(self._seconds.items())[-MAX_SECONDS:])
        with suppress(OSError):
            self._write(SECONDS, json.dumps(newest).encode())
        files = []
        for path in self.folder.glob(f"*{SUFFIX}*"):
            with suppress(OSError):
                status = path.stat()
                files.append((status.st_mtime_ns, path.name, status.st_size, path))
        total = sum(size for _, _, size, _ in files)
        for _, _, size, path in sorted(files):
            if total <= self._max_bytes:
                break
            with suppress(OSError):
                path.unlink()
            total -= size

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{SUFFIX}"

    def _known(self) -> dict[str, float]:
        try:
            found = json.loads((self.folder / SECONDS).read_bytes())
            return {str(config): float(cpu_s) for config, cpu_s in found.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}  # runs are then in the order of the studies

    def _write(self, name: str, content: bytes) -> None:
        part = self.folder / f"{name}.{os.getpid()}.part"
        try:
            part.write_bytes(content)
            os.replace(part, self.folder / name)
        except BaseException:
            part.unlink(missing_ok=True)
            raise

    def _warn_once(self, kind: str, message: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            self._warn(message)
