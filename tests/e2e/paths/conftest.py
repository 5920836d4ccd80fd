"""Started once for all files here: a vLLM that generates, a vLLM that embeds, the gateway before both."""

import asyncio
import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvloop

from fairhit.dispatch import Dispatcher
from fairhit.gateway.server import Gateway
from fairhit.gateway.settings import GatewaySettings
from fairhit.local.demo_model import demo_model
from fairhit.local.engine_process import CPU_FLAGS, DEMO_FLAGS, HOST, QUIET, free_ports

WRITES, EMBEDS = "demo", "vectors"
KEY = "key-of-clients"
START_TIMEOUT_S = 420.0
STOP_TIMEOUT_S = 20.0
FLAGS = {
    WRITES: (
        "--enable-prompt-tokens-details", "--enable-auto-tool-choice", "--tool-call-parser", "hermes",
    ),
    EMBEDS: ("--runner", "pooling", "--convert", "embed"),
}  # fmt: skip


@dataclass
class Answer:
    """What a server sent, in full."""

    status: int
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def post(port: int, path: str, body: dict[str, Any], **headers: str) -> Answer:
    """One request with a connection of its own."""
    lines = {"Content-Type": "application/json", **headers}
    connection = http.client.HTTPConnection(HOST, port, timeout=120)
    connection.request("POST", path, json.dumps(body).encode(), lines)
    answer = connection.getresponse()
    return Answer(answer.status, answer.read())


@dataclass
class Pair:
    """The gateway's port and the engines' own, by the model each serves."""

    gateway: int
    engines: dict[str, int]
    dispatcher: Dispatcher

    def directly(self, path: str, body: dict[str, Any]) -> Answer:
        return post(self.engines[body["model"]], path, body)

    def through(self, path: str, body: dict[str, Any], *, client: str) -> Answer:
        return post(self.gateway, path, body, **{"x-smg-tenant-id": client})

    def wait_idle(self) -> None:
        """Until no request is under way."""
        deadline_s = time.monotonic() + 20
        while any(account.in_flight for _, account in self.dispatcher.ledger.accounts()):
            assert time.monotonic() < deadline_s
            time.sleep(0.05)

    def taken(self, client: str) -> tuple[int, int, int]:
        """Extend, cached and output tokens that the client has been charged with.

        An answer is on its way before it is charged.
        """
        self.wait_idle()
        service = dict(self.dispatcher.ledger.accounts())[client].service
        return service.extend_len, service.cached_len, service.output_len


def started(model: str, port: int, log: Path) -> subprocess.Popen[bytes]:
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server",
        "--model", str(demo_model()), "--served-model-name", model,
        "--host", HOST, "--port", str(port), *CPU_FLAGS, *DEMO_FLAGS, *FLAGS[model],
    ]  # fmt: skip
    environment = {
        **os.environ, **QUIET,
        "OMP_NUM_THREADS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1",
    }  # fmt: skip
    with log.open("wb") as out:
        return subprocess.Popen(
            command, env=environment, stdout=out, stderr=out, start_new_session=True
        )


def wait(process: subprocess.Popen[bytes], model: str, port: int, log: Path) -> None:
    """Until it has answered a request of its kind."""
    path = "/v1/completions" if model == WRITES else "/v1/embeddings"
    body = {"model": model, "prompt": "ready?", "input": "ready?", "max_tokens": 1}
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline_s:
        assert process.poll() is None, log.read_text(errors="replace")[-4000:]
        with contextlib.suppress(OSError, http.client.HTTPException):
            if post(port, path, body).status == 200:
                return
        time.sleep(0.5)
    raise AssertionError(log.read_text(errors="replace")[-4000:])


def stopped(process: subprocess.Popen[bytes]) -> None:
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def serving(settings: GatewaySettings) -> Iterator[Gateway]:
    """A gateway on an event loop of its own, once all its engines are up."""
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="gateway")
    thread.start()

    async def up() -> Gateway:
        gateway = Gateway(settings)
        await gateway.start()
        async with asyncio.timeout(30):
            while not all(worker.up for worker in gateway.dispatcher.engines.values()):
                await asyncio.sleep(0.05)
        return gateway

    try:
        gateway = asyncio.run_coroutine_threadsafe(up(), loop).result(60)
        yield gateway
        asyncio.run_coroutine_threadsafe(gateway.stop(), loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Both engines start at once, since most of it is reading files."""
    folder = tmp_path_factory.mktemp("engines")
    ports = dict(zip(FLAGS, free_ports(len(FLAGS)), strict=True))
    logs = {model: folder / model for model in ports}
    processes = {model: started(model, port, logs[model]) for model, port in ports.items()}
    try:
        for model, process in processes.items():
            wait(process, model, ports[model], logs[model])
        settings = GatewaySettings(
            port=0,
            worker_urls=tuple(f"http://{HOST}:{port}" for port in ports.values()),
            tenant_api_key=(f"clients:{KEY}",),
            trust_tenant_header=True,
        )
        with serving(settings) as gateway:
            yield Pair(gateway.port, ports, gateway.dispatcher)
    finally:
        for process in processes.values():
            stopped(process)
