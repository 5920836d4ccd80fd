"""A vLLM server with the demo model and the plug-in's three flags, in a process group of its own."""

import contextlib
import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairhit.local.demo_model import demo_model
from fairhit.local.engine_process import CPU_FLAGS, DEMO_FLAGS, HOST, QUIET, free_ports
from tests import process_group

START_TIMEOUT_S = 420.0
STOP_TIMEOUT_S = 20.0
KEYS = "alice:key-a,bob:key-b"


class Server:
    """Started by `running`; `log` is all it said."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, object],
        flags: Sequence[str] = ("--middleware", "fairhit.engines.vllm.ClientIdentity"),
    ) -> None:
        (self.port,) = free_ports(1)
        counters = folder / "counters"
        counters.mkdir()
        self._log = folder / "log"
        self.shown_at_first: list[str] = []  # by /metrics, before it was asked anything
        command = [
            sys.executable, "-m", "vllm.entrypoints.openai.api_server",
            "--model", str(demo_model()), "--served-model-name", "demo",
            "--host", HOST, "--port", str(self.port), *CPU_FLAGS, *DEMO_FLAGS,
            "--scheduler-cls", "fairhit.engines.vllm.FairScheduler",
            "--additional-config", json.dumps({"fairhit": dict(settings)}),
            "--enable-prompt-tokens-details", *flags,
        ]  # fmt: skip
        environment = {
            **os.environ, **QUIET,
            "OMP_NUM_THREADS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1",
            "FAIRHIT_KEYS": KEYS, "PROMETHEUS_MULTIPROC_DIR": str(counters),
        }  # fmt: skip
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def stop(self) -> None:
        process_group.end(self.process, within_s=STOP_TIMEOUT_S)

    def wait_until_it_answers(self) -> None:
        """A log line or an open port proves nothing: only a completion does."""
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline_s:
            assert self.process.poll() is None, self.log[-4000:]
            with contextlib.suppress(OSError, http.client.HTTPException):
                self.shown_at_first = self.metrics()
                if self.complete("ready?", key="key-a", max_tokens=1)[0] == 200:
                    return
            time.sleep(0.5)
        raise AssertionError(self.log[-4000:])

    def call(
        self, method: str, path: str, body: bytes = b"", *, key: str | None = None
    ) -> http.client.HTTPResponse:
        headers = {"Content-Type": "application/json"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        connection = http.client.HTTPConnection(HOST, self.port, timeout=120)
        connection.request(method, path, body or None, headers)
        return connection.getresponse()

    def complete(self, prompt: str, *, key: str | None, **fields: Any) -> tuple[int, Any]:
        body = {"model": "demo", "prompt": prompt, "ignore_eos": True, **fields}
        answer = self.call("POST", "/v1/completions", json.dumps(body).encode(), key=key)
        return answer.status, json.loads(answer.read())

    def metrics(self) -> list[str]:
        """The lines of /metrics."""
        return self.call("GET", "/metrics").read().decode().splitlines()

    def counted(self, client: str, kind: str) -> float:
        """A per-client metric as /metrics has it now; 0 where there is none."""
        for line in self.metrics():
            if line.startswith(f'fairhit_{kind}{{client="{client}"}}'):
                return float(line.split()[-1])
        return 0.0

    def clients(self) -> set[str]:
        """Every client that /metrics names."""
        return {line.split('"')[1] for line in self.metrics() if line.startswith("fairhit_service")}


@contextlib.contextmanager
def running(
    folder: Path, *, flags: Sequence[str] | None = None, **settings: object
) -> Iterator[Server]:
    """By default clients are distinguished by their keys; other `flags` are instead of that one."""
    server = Server(folder, settings) if flags is None else Server(folder, settings, flags)
    try:
        yield server
    finally:
        server.stop()
