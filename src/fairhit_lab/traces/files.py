"""Files by their suffix: plain, gzip or zstd, read as bytes; written whole or not at all."""

import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from fairhit.errors import ConfigError, in_words
from fairhit.installing import install_command

STANDARD = "-"  # standard input or output
ZSTD = (".zst", ".zstd")
CHUNK = 1 << 18
# A longer line is a broken file; a prompt of ten million token ids is a third of it.
MAX_LINE = 1 << 28


class ZstdReader(io.RawIOBase):
    """The bytes inside a zstd file of one or more frames. Raises EOFError if the last is cut off."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file
        self._zstandard = _zstandard()
        self._frame: Any = None
        self._packed = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._ready:
            if not self._packed and not (packed := self._file.read(CHUNK)):
                if self._frame is not None:
                    raise EOFError("the zstd data ends early")
                return 0
            self._packed = self._packed or packed
            self._frame = self._frame or self._zstandard.ZstdDecompressor().decompressobj()
            self._ready = memoryview(self._frame.decompress(self._packed))
            self._packed = self._frame.unused_data if self._frame.eof else b""
            if self._frame.eof:
                self._frame = None
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def _zstandard() -> Any:
    try:
        import zstandard
    except ModuleNotFoundError:
        raise ConfigError(f"zstd files need zstandard: {install_command('lab')}") from None
    return zstandard


def open_bytes(path: str | Path) -> BinaryIO:
    """The file's content, unpacked by its suffix. Raises ConfigError."""
    try:
        file = open(path, "rb")  # noqa: SIM115 - the caller closes it
    except OSError as error:
        raise ConfigError(in_words(error)) from None
    if str(path).endswith(".gz"):
        return cast("BinaryIO", _GzipFile(file))
    if str(path).endswith(ZSTD):
        return io.BufferedReader(ZstdReader(file), CHUNK)
    return file


class _GzipFile(gzip.GzipFile):
    """A GzipFile that closes what it reads from."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(fileobj=file)
        self._packed = file

    def close(self) -> None:
        super().close()
        self._packed.close()


def lines(path: str | Path) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers from 1, blank ones left out. Raises ConfigError with FILE:LINE."""
    number = 0
    with nullcontext(sys.stdin.buffer) if str(path) == STANDARD else open_bytes(path) as file:
        try:
            while line := file.readline(MAX_LINE):
                number += 1
                if number == 1:
                    _require_unpacked(line)
                if len(line) == MAX_LINE and not line.endswith(b"\n"):
                    raise ConfigError(f"expected a line of at most {MAX_LINE} bytes, got more")
                if not line.isspace():
                    yield number, line
        except ConfigError as error:
            raise ConfigError(f"{path}:{number}: {error}") from None
        except (EOFError, OSError, zlib.error) as error:
            raise ConfigError(f"{path}:{number + 1}: {_unreadable(error)}") from None
        except Exception as error:
            # zstandard's own error type exists only where zstandard does.
            if type(error).__module__.partition(".")[0] != "zstandard":
                raise
            raise ConfigError(f"{path}:{number + 1}: broken zstd data: {error}") from None


# How packed data begins, and the suffix by which it would have been unpacked.
MAGIC = {b"\x1f\x8b": ("gzip", ".gz"), b"\x28\xb5\x2f\xfd": ("zstd", ".zst")}


def _require_unpacked(line: bytes) -> None:
    for magic, (packer, suffix) in MAGIC.items():
        if line.startswith(magic):
            raise ConfigError(
                f"packed by {packer}: expected plain text, or a file whose name ends in {suffix}"
            )


def _unreadable(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "expected more, got the end of the packed data (the file is cut off)"
    if isinstance(error, OSError) and error.strerror:
        return in_words(error)
    return f"broken gzip data: {error}"


@contextmanager
def written(path: str | Path) -> Iterator[IO[bytes]]:
    """A file to write, packed by its suffix; it gets its name only once it is complete.

    Until then it is `path.part`; if the writer raises, that is removed and an older file of the same
    name is untouched. `-` is standard output; a device or a pipe is written to as it is, and a link
    stays one. Raises ConfigError if it cannot be created.
    """
    if str(path) == STANDARD:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        # Renamed over a device, a file would take its place for everyone on the machine.
        target = Path(path).resolve() if Path(path).is_file() else Path(path)
        whole = target.is_file() or not target.exists()
        part = target.with_name(f"{target.name}.part") if whole else target
        file = part.open("wb")
    except OSError as error:
        error.filename = str(path)  # not the part's, which no user has named
        raise ConfigError(in_words(error)) from None
    try:
        with file, _packed(file, str(path)) as packed:
            yield packed
        if whole:
            os.replace(part, target)
    except BaseException as error:
        if whole:
            part.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in {None, str(part)}:
            error.filename = str(path)  # a full disk does not say which of the files
        raise


def _packed(file: BinaryIO, path: str) -> AbstractContextManager[IO[bytes]]:
    if path.endswith(".gz"):
        # No name and no time inside: the same rows are the same bytes.
        return cast("IO[bytes]", gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0))
    if path.endswith(ZSTD):
        return cast("IO[bytes]", _zstandard().ZstdCompressor().stream_writer(file, closefd=False))
    return nullcontext(file)
