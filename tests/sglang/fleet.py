"""A vLLM and a SGLang, each with or without its plug-in, behind a gateway in this process."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairhit.dispatch import Engine as Worker
from fairhit.gateway.server import Gateway
from fairhit.gateway.settings import GatewaySettings
from fairhit.local.demo_model import demo_model
from fairhit.local.engine_process import HOST, free_ports
from fairhit.routers.prefix_index.precise import PrecisePrefixIndex
from tests.e2e.gateway.world import Connection, Reply, eventually
from tests.e2e.kv_events.engine import Engine
from tests.sglang.publishing import PublishingSGLang

QUANTUM = 64
BLOCK_LEN = 16
# Engines on a busy machine: until one answers, or tells what it has, or both have answered a flood.
PATIENCE_S = 300.0
PLUGGED = (
    "--scheduler-cls", "fairhit.engines.vllm.FairScheduler",
    "--additional-config", json.dumps({"fairhit": {"scheduler": "dlpm", "quantum": QUANTUM}}),
)  # fmt: skip


@dataclass
class Engines:
    """Both, running."""

    vllm: Engine
    sglang: PublishingSGLang

    @property
    def urls(self) -> tuple[str, str]:
        return self.vllm.url, self.sglang.url

    def kill_sglang(self) -> None:
        """kill -9 for each of its processes; its ports stay its own."""
        assert self.sglang.server is not None
        os.killpg(self.sglang.server.process.pid, signal.SIGKILL)
        self.sglang.server.process.wait(20)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Engines]:
    """Both with the plug-in, four places each."""
    ports = free_ports(6)
    # By what is there the gateway sees vLLM's plug-in; SGLang makes a folder of its own.
    counted = folder / "counters"
    counted.mkdir()
    engines = Engines(
        Engine(folder, ports[:3], PLUGGED, {"PROMETHEUS_MULTIPROC_DIR": str(counted)}),
        PublishingSGLang(
            folder,
            ports[3:],
            policy="dlpm",
            page_len=16,
            environment={"FAIRHIT_QUANTUM": str(QUANTUM)},
        ),
    )
    try:
        engines.vllm.start()
        engines.sglang.start()
        yield engines
    finally:
        for engine in (engines.vllm, engines.sglang):
            if engine is engines.sglang or engines.vllm.process is not None:
                engine.stop()


@dataclass
class Fleet:
    """A gateway before both."""

    gateway: Gateway
    engines: Engines

    @property
    def index(self) -> PrecisePrefixIndex:
        index = self.gateway.dispatcher.index
        assert isinstance(index, PrecisePrefixIndex)
        return index

    def worker(self, url: str) -> Worker:
        return self.gateway.dispatcher.engines[url]

    async def ask(
        self, client: str, prompt: object, *, max_tokens: int = 4, **more: object
    ) -> Reply:
        """A completion, whole, on behalf of `client`."""
        body = {"model": "demo", "prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True}
        connection = Connection(*await asyncio.open_connection(HOST, self.gateway.port))
        connection.send(
            "/v1/completions",
            json.dumps({**body, **more}).encode(),
            x_smg_tenant_id=client,
            content_type="application/json",
        )
        try:
            return await connection.reply(within=PATIENCE_S)
        finally:
            connection.writer.close()

    async def cached(self, client: str, prompt: object) -> int:
        """Return how many tokens of the prompt were cached."""
        reply = await self.ask(client, prompt)
        assert reply.status == 200, reply.body
        details = json.loads(reply.body)["usage"]["prompt_tokens_details"] or {}
        return int(details.get("cached_tokens") or 0)


@contextlib.asynccontextmanager
async def gateway_before(engines: Engines, **settings: object) -> AsyncIterator[Fleet]:
    """Once both engines are up."""
    both: Sequence[Engine] = (engines.vllm, engines.sglang)
    given = {
        "port": 0,
        "worker_urls": engines.urls,
        "identity_field": "both",
        "trust_tenant_header": True,
        "tokenizer": demo_model(),
        "block_size": BLOCK_LEN,
        "kv_events_topic": "kv",
        "kv_events_endpoint": {each.url: (f"tcp://{HOST}:{each.ports[1]}",) for each in both},
        "kv_events_replay_endpoint": {
            each.url: (f"tcp://{HOST}:{each.ports[2]}",) for each in both
        },
        "worker_quantum": QUANTUM,
        "quantum": QUANTUM,
        "health_check_interval_secs": 0.5,
        "health_check_timeout_secs": 60,
        "shutdown_timeout_secs": 1,
        **settings,
    }
    gateway = Gateway(GatewaySettings(**given))
    await gateway.start()
    fleet = Fleet(gateway, engines)
    try:
        await eventually(
            lambda: all(fleet.worker(url).up for url in engines.urls), within=PATIENCE_S
        )
        yield fleet
    finally:
        await gateway.stop()
