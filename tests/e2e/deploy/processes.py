"""Programs started as an operator starts them, and what they answer over HTTP."""

import contextlib
import http.client
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence


def plain_environment(**more: str) -> dict[str, str]:
    """Ours, without what would be settings of a gateway."""
    ours = {name: text for name, text in os.environ.items() if not name.startswith("FAIRHIT_")}
    return {**ours, **more}


@contextlib.contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str]
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the program in the block; then terminate it, which must succeed."""
    with subprocess.Popen(command, env=dict(environment)) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


def status_of(port: int, path: str) -> int:
    """Status of a GET; 0 while the port is closed."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def until(condition: Callable[[], bool], *, within_s: float = 30) -> None:
    """Wait for it."""
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, f"not within {within_s} s"
        time.sleep(0.05)
