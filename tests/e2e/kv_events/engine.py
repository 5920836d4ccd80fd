"""A stock vLLM server that publishes KV events, and a gateway in this process that receives them."""

import asyncio
import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from fairhit.gateway.api.endpoints import ENDPOINTS
from fairhit.gateway.api.request_body import parse_body
from fairhit.gateway.prefix.kv_events.cache_monitor import CacheCounts
from fairhit.gateway.server import Gateway
from fairhit.gateway.settings import GatewaySettings
from fairhit.local.demo_model import demo_model
from fairhit.local.engine_process import CPU_FLAGS, HOST, QUIET, free_ports
from fairhit.routers.prefix_index.precise import Knowledge, PrecisePrefixIndex
from tests.e2e.kv_events.prompts import COMPLETIONS, numbers

START_TIMEOUT_S = 420.0
# For what is to happen: it costs nothing where it does, and a busy machine is no failure.
TIMEOUT_S = 180.0
BLOCK_LEN = 32
BLOCKS = 96  # a small cache: 3,072 tokens
_FLAGS = (
    "--max-num-seqs", "4", "--num-gpu-blocks-override", str(BLOCKS), "--max-model-len", "2048",
    "--dtype", "float32", "--enable-prefix-caching", "--enable-prompt-tokens-details",
)  # fmt: skip


@dataclass
class Engine:
    """The server; `stop` and `start` again keep its ports."""

    folder: Path
    ports: list[int] = field(default_factory=lambda: free_ports(3))
    flags: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    marks: Iterator[int] = field(default_factory=count)  # prompts that were not sent before

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.ports[0]}"

    def start(self) -> None:
        events = {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": f"tcp://*:{self.ports[1]}",
            "replay_endpoint": f"tcp://*:{self.ports[2]}",
            "topic": "kv",
        }
        command = [
            sys.executable, "-m", "vllm.entrypoints.openai.api_server",
            "--model", str(demo_model()), "--served-model-name", "demo",
            "--host", HOST, "--port", str(self.ports[0]), *CPU_FLAGS, *_FLAGS,
            "--kv-events-config", json.dumps(events), *self.flags,
        ]  # fmt: skip
        environment = {
            **os.environ, **QUIET,
            "OMP_NUM_THREADS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1",
            **self.environment,
        }  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        self._wait()

    def stop(self) -> None:
        assert self.process is not None
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def ask(self, path: str, body: dict[str, Any], *, port: int | None = None) -> dict[str, Any]:
        """An answer, from the engine itself or from who listens at `port`."""
        connection = http.client.HTTPConnection(HOST, port or self.ports[0], timeout=120)
        body = {"model": "demo", "max_tokens": 2, "ignore_eos": True, **body}
        headers = {"Content-Type": "application/json"}
        connection.request("POST", path, json.dumps(body).encode(), headers)
        answer = connection.getresponse()
        read: dict[str, Any] = json.loads(answer.read())
        assert answer.status == 200, read
        connection.close()
        return read

    def _wait(self) -> None:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline_s:
            assert self.process is not None and self.process.poll() is None, self._said()
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection(HOST, self.ports[0], timeout=10)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return
            time.sleep(0.5)
        raise AssertionError(self._said())

    def _said(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-4000:]


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Engine]:
    engine = Engine(folder)
    try:
        engine.start()
        yield engine
    finally:
        engine.stop()


@dataclass
class Pair:
    """The gateway and its engine."""

    gateway: Gateway
    engine: Engine
    block_len: int = BLOCK_LEN

    @property
    def index(self) -> PrecisePrefixIndex:
        index = self.gateway.dispatcher.index
        assert isinstance(index, PrecisePrefixIndex)
        return index

    @property
    def counts(self) -> CacheCounts:
        return self.gateway._caches.counts()[self.engine.url]

    @property
    def knowledge(self) -> Knowledge:
        return self.index.knowledge(self.engine.url)

    def expected(self, path: str, body: dict[str, Any]) -> int:
        """Cached tokens of the prompt by the gateway's index."""
        call = parse_body(json.dumps({"model": "demo", **body}).encode(), ENDPOINTS[path.encode()])
        tokenizer = self.gateway._caches.tokenizer
        assert tokenizer is not None
        prompt = tokenizer.prompt(call)
        assert prompt.exact, body
        return self.index.match(prompt.reusable).of(self.engine.url) * self.block_len

    async def ask(self, path: str, body: dict[str, Any], *, around: bool = False) -> int:
        """Cached tokens of the prompt by the engine's report; `around` the gateway."""
        port = None if around else self.gateway.port
        answer = await asyncio.to_thread(self.engine.ask, path, body, port=port)
        return int((answer["usage"]["prompt_tokens_details"] or {}).get("cached_tokens") or 0)

    async def heard(self) -> None:
        """All that the engine has published by now is in the index: so is one more block, asked for last."""
        prompt = numbers(10_000 + next(self.engine.marks), self.block_len + 1)
        mark = {"prompt": prompt, "max_tokens": 1}
        await self.ask(COMPLETIONS, mark, around=True)
        async with asyncio.timeout(TIMEOUT_S):
            while self.expected(COMPLETIONS, mark) < self.block_len:
                await asyncio.sleep(0.01)

    async def differences(self, *asked: tuple[str, dict[str, Any]]) -> list[int]:
        """Of each prompt, one after the other: what the engine had, less what was expected."""
        found = []
        for path, body in asked:
            await self.heard()
            expected = self.expected(path, body)
            found.append(await self.ask(path, body) - expected)
        await self.heard()
        self.index.check()
        return found

    async def until(self, knowledge: Knowledge) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not self.gateway.dispatcher.ready() or self.knowledge is not knowledge:
                await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def gateway_before(engine: Engine, *, block_len: int = BLOCK_LEN, **settings: Any) -> Any:
    """A gateway, once it knows the engine's cache."""
    given: dict[str, Any] = {
        "kv_events_endpoint": {engine.url: (f"tcp://{HOST}:{engine.ports[1]}",)},
        "kv_events_replay_endpoint": {engine.url: (f"tcp://{HOST}:{engine.ports[2]}",)},
        **settings,
    }
    gateway = Gateway(
        GatewaySettings(
            port=0,
            worker_urls=(engine.url,),
            tokenizer=demo_model(),
            block_size=block_len,
            kv_events_topic="kv",
            health_check_interval_secs=0.5,
            health_check_timeout_secs=60,
            health_failure_threshold=1,
            shutdown_timeout_secs=1,
            **given,
        )
    )
    await gateway.start()
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while not gateway.dispatcher.ready():
                await asyncio.sleep(0.05)
        yield Pair(gateway, engine, block_len)
    finally:
        await gateway.stop()
