"""A redis-server of a test's own, which can be stopped and started again."""

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator

from scripts import install_programs

from fairhit.local.engine_process import free_ports

SERVER = install_programs.find("redis-server")


class Redis:
    """On a port of its own, keeping nothing on disk."""

    def __init__(self) -> None:
        (self.port,) = free_ports(1)
        self.url = f"redis://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert SERVER is not None
        command = [SERVER, "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        self._process = subprocess.Popen(
            [*command, "--appendonly", "no", "--loglevel", "warning"],
            env=install_programs.environment(SERVER),
            stdout=subprocess.DEVNULL,
        )
        for _ in range(1500):
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            time.sleep(0.02)
        raise AssertionError("redis-server does not listen")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextlib.contextmanager
def running() -> Iterator[Redis]:
    """Run Redis in the block."""
    redis = Redis()
    redis.start()
    try:
        yield redis
    finally:
        redis.kill()
