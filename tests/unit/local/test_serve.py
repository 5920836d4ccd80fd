"""The service as a whole, with stand-ins for its processes: how it ends, and where it listens."""

import asyncio
import errno
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import psutil
import pytest

from fairhit.errors import ConfigError, EngineFailed
from fairhit.gateway.settings import GatewaySettings
from fairhit.local import engine_process as local
from fairhit.local import serve
from fairhit.local.guard import GRACE_VARIABLE
from fairhit.local.supervision import Child

# Hears no SIGTERM, as an engine in trouble; says that it is up by making the file it is named after.
STUBBORN = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(sys.argv[1]).touch()
time.sleep(600)
"""
# Writes down when it was asked to stop, and ends.
OBEDIENT = """
import pathlib, signal, sys, time
def end(*_): pathlib.Path(sys.argv[1] + "-end").write_text(str(time.monotonic())); sys.exit()
signal.signal(signal.SIGTERM, end)
pathlib.Path(sys.argv[1]).touch()
time.sleep(600)
"""


def stand_ins(
    code: str, places: list[Path], *, grace_s: float = 30
) -> Callable[..., serve.RunningService]:
    """In place of `serve.arrange`: two engines and a gateway that run `code`."""

    def arrange(options: serve.ServeOptions, folder: Path, notify: object) -> serve.RunningService:
        places.append(folder)
        (folder / serve.GATEWAY_CONFIG).write_text("tenants' keys")

        def part(name: str) -> Child:
            mark = folder / name

            async def is_up() -> bool:
                return mark.exists()

            return Child(
                name=name,
                command=[sys.executable, "-c", code, str(mark)],
                environment=os.environ,
                log=folder / f"{name}.log",
                probe=is_up,
                notify=lambda *_: None,
                grace_s=grace_s,
            )

        return serve.RunningService(
            host="127.0.0.1",
            port=1,
            model="demo",
            engines=[part("engine-0"), part("engine-1")],
            engine_urls=[],
            gateway=part("gateway"),
            folder=folder,
        )

    return arrange


OPTIONS = serve.ServeOptions(gateway=GatewaySettings(port=0))


def quiet(_name: str, _news: str) -> None:
    """Ignore notifications."""


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders of services that run OBEDIENT stand-ins."""
    found: list[Path] = []
    monkeypatch.setattr(local, "require_vllm", lambda: None)
    monkeypatch.setattr(serve, "arrange", stand_ins(OBEDIENT, found))
    return found


# `fairhit serve`, as far as its end goes.
COMMAND = """
import asyncio, sys
from fairhit.cli import console
from fairhit.local import serve
from fairhit.local import engine_process as local
from tests.unit.local import test_serve as stories
local.require_vllm = lambda: None
places = []
serve.arrange = stories.stand_ins(stories.STUBBORN, places)
async def work():
    async with serve.running(stories.OPTIONS, stories.quiet):
        print("up", places[0], flush=True)
        await asyncio.Event().wait()
sys.exit(not console.until_done(work()))
"""


@pytest.fixture
def command() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", COMMAND], stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.wait()


def test_pressing_ctrl_c_again_and_again_leaves_nothing_behind(command: subprocess.Popen[str]):
    """Engines that do not stop, and a person who does not want to wait for them."""
    assert command.stdout is not None
    folder = Path(command.stdout.readline().removeprefix("up ").rstrip())
    family = psutil.Process(command.pid).children(recursive=True)
    assert len(family) == 6  # three guards, each with its command

    began_s = time.monotonic()
    for expected in ("stopping: requests in flight", "stopping; once more", "stopping at once"):
        command.send_signal(signal.SIGINT)
        assert command.stdout.readline().startswith(expected)
    assert command.stdout.readline() == "stopped\n"

    assert command.wait(30) == 1
    assert time.monotonic() - began_s < 25  # each has 30 s to stop by itself
    assert [process for process in family if process.is_running()] == []
    assert not folder.exists()


def test_cleaning_up_is_not_cancelled(places: list[Path], monkeypatch: pytest.MonkeyPatch):
    """A program that cancels twice is served like an operator at a terminal."""
    monkeypatch.setattr(serve, "arrange", stand_ins(STUBBORN, places, grace_s=0.5))
    # Other tests leave a process to this one: multiprocessing's, which counts resources.
    others = psutil.Process().children(recursive=True)

    async def story() -> list[psutil.Process]:
        up = asyncio.Event()

        async def body() -> None:
            async with serve.running(OPTIONS, quiet):
                up.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(body())
        await asyncio.wait_for(up.wait(), 30)
        every = psutil.Process().children(recursive=True)
        family = [process for process in every if process not in others]
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0.1)
        with pytest.raises(asyncio.CancelledError):
            await task
        return family

    family = asyncio.run(story())

    assert len(family) >= 6
    assert [process for process in family if process.is_running()] == []
    assert not places[0].exists()


def test_the_gateway_stops_before_the_engines(places: list[Path], monkeypatch: pytest.MonkeyPatch):
    """In-flight requests need the engines to finish."""
    ends: dict[str, float] = {}

    def look(folder: Path, *, keep_logs: bool) -> None:
        for path in folder.glob("*-end"):
            ends[path.name] = float(path.read_text())

    monkeypatch.setattr(serve, "clear", look)

    async def story() -> None:
        async with serve.running(OPTIONS, quiet):
            pass

    asyncio.run(story())
    shutil.rmtree(places[0])

    assert ends["gateway-end"] < min(ends["engine-0-end"], ends["engine-1-end"])


def test_logs_of_a_failure_stay_and_keys_do_not(
    places: list[Path], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(serve, "arrange", stand_ins("raise ValueError('no')", places))

    async def story() -> None:
        async with serve.running(OPTIONS, quiet):
            raise AssertionError("it is not up")

    with pytest.raises(EngineFailed, match="ValueError: no"):
        asyncio.run(story())

    left = {path.name for path in places[0].iterdir()}
    shutil.rmtree(places[0])
    assert "engine-0.log" in left
    assert serve.GATEWAY_CONFIG not in left


def test_the_gateway_may_take_the_time_it_was_given(tmp_path: Path):
    """--shutdown-timeout-secs 120: its guard must not kill it after 8 seconds."""
    settings = GatewaySettings(shutdown_timeout_secs=120)

    gateway = serve.make_gateway(settings, api_key="k", folder=tmp_path, notify=quiet)

    assert float(gateway._environment[GRACE_VARIABLE]) > 120


def test_no_place_for_logs_is_one_line(monkeypatch: pytest.MonkeyPatch):
    def full(**_: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp/fairhit-1")

    monkeypatch.setattr("tempfile.mkdtemp", full)

    with pytest.raises(
        ConfigError, match="no folder for logs and settings: /tmp/fairhit-1: No space"
    ):
        serve.prepare(OPTIONS, quiet)


def test_settings_that_cannot_be_written_are_one_line_and_leave_nothing(
    monkeypatch: pytest.MonkeyPatch,
):
    places = []

    def full(options: serve.ServeOptions, folder: Path, notify: object) -> serve.RunningService:
        places.append(folder)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(serve, "arrange", full)

    with pytest.raises(ConfigError, match="cannot write settings: No space left on device"):
        serve.prepare(OPTIONS, quiet)
    assert not places[0].exists()


def test_engines_leave_the_gateway_its_port():
    """--port may be one of those that engines get."""
    (port,) = local.free_ports(1)

    assert port not in local.free_ports(5, besides=port)


def test_the_service_can_listen_on_ipv6(tmp_path: Path):
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            ConfigError, match=f"--port {port}: cannot listen on ::1: Address already in use$"
        ):
            serve.require_free("::1", port)

    serve.require_free("::1", port)
    service = serve.RunningService(
        host="::1",
        port=port,
        model="demo",
        engines=[],
        engine_urls=[],
        gateway=serve.make_gateway(GatewaySettings(), api_key="k", folder=tmp_path, notify=quiet),
        folder=tmp_path,
    )
    assert service.url == f"http://[::1]:{port}"


def test_a_host_that_does_not_exist_is_said_at_once():
    with pytest.raises(ConfigError, match=r"--host no\.such\.host\.invalid: "):
        serve.require_free("no.such.host.invalid", 0)


class Ready(BaseHTTPRequestHandler):
    """Answers 200 to whatever is asked."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def test_a_gateway_that_speaks_tls_is_found_ready(tmp_path: Path):
    """The certificate is self-signed, and for the names that callers use."""
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
            "-nodes", "-days", "2", "-subj", "/CN=elsewhere", "-keyout", key, "-out", certificate,
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with HTTPServer(("127.0.0.1", 0), Ready) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.handle_request, daemon=True).start()
        settings = GatewaySettings(
            port=server.server_port, tls_cert_path=certificate, tls_key_path=key
        )

        assert serve._gateway_is_ready(settings)
