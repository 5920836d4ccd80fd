"""A stock vLLM server with four places, a gateway in this process, and two tenants who ask without end."""

import asyncio
import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fairhit.core.service import Service
from fairhit.gateway.server import Gateway
from fairhit.gateway.settings import GatewaySettings
from fairhit.local.demo_model import demo_model
from fairhit.local.engine_process import CPU_FLAGS, DEMO_FLAGS, HOST, QUIET, free_ports
from tests.e2e.gateway.world import Connection, eventually

START_TIMEOUT_S = 420.0
STOP_TIMEOUT_S = 20.0
FLOOD, LIGHT = "flood", "light"
# Requests each keeps open. Both ask for more than half of the four places at all times, one of them
# for five times as much as the other.
CALLERS = {FLOOD: 30, LIGHT: 6}
OUTPUTS = 8
# Longest wait for so many answers, on a machine that has other things to do.
TIMEOUT_S = 150.0
SYSTEM = "You are a patient assistant who answers in full sentences. " * 2


@contextlib.contextmanager
def stock_engine(folder: Path) -> Iterator[str]:
    """Its URL. No plug-in, and so nothing that is fair in it."""
    (port,) = free_ports(1)
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server",
        "--model", str(demo_model()), "--served-model-name", "demo",
        "--host", HOST, "--port", str(port), *CPU_FLAGS, *DEMO_FLAGS,
        "--enable-prefix-caching", "--enable-prompt-tokens-details",
    ]  # fmt: skip
    environment = {
        **os.environ, **QUIET,
        "OMP_NUM_THREADS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1",
    }  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        wait_until_it_answers(port, process, folder / "log")
        yield f"http://{HOST}:{port}"
    finally:
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_TIMEOUT_S)


def wait_until_it_answers(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline_s:
        assert process.poll() is None, log.read_text(errors="replace")[-4000:]
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection(HOST, port, timeout=10)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        time.sleep(0.5)
    raise AssertionError(log.read_text(errors="replace")[-4000:])


@dataclass
class Outcome:
    """What came of a run while both tenants were backlogged."""

    served: dict[str, int] = field(default_factory=dict)  # extend + 2 * output tokens
    passed: list[int] = field(default_factory=list)  # of the flood's, while one of light's waited
    statuses: set[int] = field(default_factory=set)
    engine_queue: list[int] = field(default_factory=list)  # sent and not begun, sampled
    queued_here: list[int] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """How much more the flood got."""
        return self.served[FLOOD] / self.served[LIGHT]


class Traffic:
    """Both tenants' callers, each asking again as soon as it is answered."""

    def __init__(
        self,
        gateway: Gateway,
        callers: Mapping[str, int] = CALLERS,
        *,
        outputs: int = OUTPUTS,
    ) -> None:
        self._gateway = gateway
        self._callers = callers
        self._outputs = outputs
        self._number = 0
        self._begun = {FLOOD: 0, LIGHT: 0}
        self._answers = 0
        self.outcome = Outcome()

    async def run(self, *, warm: int, answers: int, learnt: int | None = None) -> Outcome:
        """Count from the `warm`-th answer on, until there are `answers` more.

        With `learnt`, count not before the gateway has learnt the engines' capacity: until it has read each
        one's load, and at most so many requests that it sent have not begun, in five samples in a row.
        """
        callers = [
            asyncio.create_task(self._call(tenant))
            for tenant, number in self._callers.items()
            for _ in range(number)
        ]
        samples = 0
        while self._answers < warm or (learnt is not None and samples < 5):
            await asyncio.sleep(0.02)
            assert not any(caller.done() for caller in callers), self.outcome.statuses
            is_learnt = self._loads_are_read() and self._sent_and_waiting() <= (learnt or 0)
            samples = samples + 1 if is_learnt else 0
        warm = self._answers
        before = {tenant: self._service(tenant) for tenant in CALLERS}
        self.outcome.passed.clear()
        while self._answers < warm + answers:
            await asyncio.sleep(0.05)
            self.outcome.engine_queue.append(self._sent_and_waiting())
            self.outcome.queued_here.append(len(self._gateway.dispatcher.queue))
        self.outcome.served = {tenant: self._service(tenant) - before[tenant] for tenant in CALLERS}
        for task in callers:
            task.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
        return self.outcome

    def _loads_are_read(self) -> bool:
        limits = [engine.limit for engine in self._gateway.dispatcher.engines.values()]
        return all(limit is not None and limit.is_observed for limit in limits)

    def _sent_and_waiting(self) -> int:
        engines = self._gateway.dispatcher.engines.values()
        return sum(t.state.name == "WAITING" for engine in engines for t in engine.tickets)

    def _service(self, tenant: str) -> int:
        accounts = dict(self._gateway.dispatcher.ledger.accounts())
        return (
            accounts[tenant].service.system_view() if tenant in accounts else Service().extend_len
        )

    async def _call(self, tenant: str) -> None:
        connection = Connection(*await asyncio.open_connection(HOST, self._gateway.port))
        try:
            while True:
                self._number += 1
                body = {
                    "model": "demo",
                    "prompt": f"{SYSTEM} {tenant} asks question {self._number}",
                    "max_tokens": self._outputs,
                    "ignore_eos": True,
                    "stream": True,
                }
                begun = self._begun[FLOOD]
                connection.send(
                    "/v1/completions",
                    json.dumps(body).encode(),
                    x_smg_tenant_id=tenant,
                    content_type="application/json",
                )
                head = (await connection.reader.readuntil(b"\r\n\r\n")).decode()
                self.outcome.statuses.add(int(head.split()[1]))
                assert self.outcome.statuses == {200}, head
                first = True
                async for _ in connection.chunks():
                    if first:
                        self._begun[tenant] += 1
                        if tenant == LIGHT:
                            self.outcome.passed.append(self._begun[FLOOD] - begun)
                    first = False
                self._answers += 1
        finally:
            connection.writer.close()


def flood(
    url: str, *, warm: int, answers: int, learnt: int | None = None, **settings: object
) -> Outcome:
    """Two tenants before one engine, under a gateway with these settings."""

    async def run() -> Outcome:
        made = {"port": 0, "worker_urls": [url], "trust_tenant_header": True, **settings}
        gateway = Gateway(GatewaySettings(**{**made, "shutdown_timeout_secs": 0.1}))
        await gateway.start()
        await eventually(gateway.dispatcher.ready, within=30)
        async with asyncio.timeout(TIMEOUT_S):
            outcome = await Traffic(gateway).run(warm=warm, answers=answers, learnt=learnt)
        await gateway.stop()
        return outcome

    return asyncio.run(run())
