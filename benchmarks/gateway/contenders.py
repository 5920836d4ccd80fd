"""The servers that are compared: this gateway, also compiled, and PyPI's routers, each routing by cache.

The routers are installed into a virtual environment of their own, and the compiled wheel is built,
once, as `python -m benchmarks.gateway` begins; both can be deleted at any time.
"""

import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from socket import socket
from time import monotonic, sleep
from urllib.error import URLError
from urllib.request import Request, urlopen

from benchmarks import compiled
from benchmarks.gateway.load import requests

ROUTERS = {
    "vllm-router": ("vllm-router==0.1.17", "vllm_router"),
    "sglang-router": ("sglang-router==0.3.2", "sglang_router"),
    "smg": ("smg==1.13.0", "smg"),
}
ENGINES = 2
_HOME = Path(__file__).resolve().parents[2] / ".venvs" / "routers"
_READY_S = 60


@dataclass(frozen=True)
class Server:
    """A server that is running."""

    name: str
    port: int
    pid: int

    def cpu_us(self) -> float:
        """Return the CPU time of all threads of the process."""
        spent = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(path.read_text().split()[0]) for path in spent) / 1_000

    def rss_mb(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * 4096 / 1e6


def ours(queue: str, port: int, _metrics: int, engines: list[int]) -> list[str]:
    """Return the command of this gateway with D2LPM, API keys and metrics on."""
    ports = [str(number) for number in (port, *engines)]
    return [sys.executable, "-m", "benchmarks.gateway.under_test", queue, *ports]


def ours_compiled(queue: str, port: int, metrics: int, engines: list[int]) -> list[str]:
    """Return the command of this gateway from the compiled wheel."""
    found_first = f"PYTHONPATH={compiled.installed()}"
    return ["env", found_first, *ours(queue, port, metrics, engines)]


def router(module: str, port: int, metrics: int, engines: list[int]) -> list[str]:
    """Return the command of a router from PyPI, by its own launcher."""
    urls = [f"http://127.0.0.1:{engine}" for engine in engines]
    launch = [str(_HOME / "bin" / "python"), "-m", f"{module}.launch_router"]
    where = ["--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(metrics)]
    return [*launch, "--policy", "cache_aware", *where, "--worker-urls", *urls]


COMMANDS: dict[str, Callable[[int, int, list[int]], list[str]]] = {
    "fairhit": partial(ours, "engine"),
    "fairhit, queueing": partial(ours, "gateway"),
    "fairhit, compiled": partial(ours_compiled, "engine"),
    "fairhit, queueing, compiled": partial(ours_compiled, "gateway"),
    **{name: partial(router, module) for name, (_, module) in ROUTERS.items()},
}


def install(names: list[str]) -> None:
    """Install the PyPI routers among `names`, and the compiled wheel if a name needs it."""
    if any(name.endswith("compiled") for name in names):
        compiled.installed()
    wanted = [ROUTERS[name][0] for name in names if name in ROUTERS]
    if not wanted:
        return
    if not (_HOME / "bin" / "python").exists():
        venv.create(_HOME, with_pip=True)
    pip = [str(_HOME / "bin" / "python"), "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", *wanted], check=True, stderr=subprocess.DEVNULL)


def free_ports(count: int) -> list[int]:
    sockets = [socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@contextmanager
def running(names: list[str]) -> Iterator[tuple[int, list[Server]]]:
    """Start mock engines and each of `names` in front of them; yield an engine's port and the servers.

    All servers run at once; one that gets no load costs no more than its probes.
    """
    engines = free_ports(ENGINES)
    with ExitStack() as stack:
        mock = [sys.executable, "-m", "benchmarks.gateway.mock_engine", *map(str, engines)]
        _start(stack, mock)
        servers = []
        for name in names:
            port, metrics = free_ports(2)
            pid = _start(stack, COMMANDS[name](port, metrics, engines))
            servers.append(Server(name, port, pid))
        for server in servers:
            _await_ready(server)
        yield engines[0], servers


def _start(stack: ExitStack, command: list[str]) -> int:
    quiet = subprocess.DEVNULL
    child = subprocess.Popen(command, stdout=quiet, stderr=quiet)
    stack.callback(child.wait)
    stack.callback(child.terminate)
    return child.pid


def _await_ready(server: Server) -> None:
    """Wait until a completion is answered: some routers listen long before they serve."""
    url = f"http://127.0.0.1:{server.port}/v1/chat/completions"
    body = next(requests(256, seed=0)).partition(b"\r\n\r\n")[2]
    headers = {"content-type": "application/json", "authorization": "Bearer key-0"}
    until = monotonic() + _READY_S
    while monotonic() < until:
        try:
            urlopen(Request(url, body, headers), timeout=5)
        except (URLError, OSError):
            sleep(0.1)
        else:
            return
    raise SystemExit(f"{server.name} did not become ready")
