"""A real SGLang server with the demo model, in a process group of its own."""

import contextlib
import http.client
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fairhit.local.demo_model import demo_model
from fairhit.local.engine_process import HOST, free_ports
from tests import process_group

# SGLang's python, where the tests run in another: those of the gateway do.
PYTHON = os.environ.get("FAIRHIT_SGLANG", sys.executable)
START_TIMEOUT_S = 900.0
STOP_TIMEOUT_S = 20.0
CALL_TIMEOUT_S = 300.0
# For what is to happen: it costs nothing where it does, and a busy machine is no failure.
PATIENCE_S = 600.0
# Who asks for nothing but that what came before is written.
WITNESS = "witness"

# What SGLang needs to compute on a CPU; its warm-up would come before the port listens, and fail.
CPU_FLAGS = (
    "--device", "cpu", "--attention-backend", "torch_native", "--sampling-backend", "pytorch",
    "--grammar-backend", "none", "--disable-cuda-graph", "--dtype", "float32", "--skip-server-warmup",
)  # fmt: skip
ENVIRONMENT = {
    "SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1",
    "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false",
}  # fmt: skip
# A small engine, so that a handful of callers fills it.
SMALL = ("--max-total-tokens", "8000", "--max-running-requests", "4")


class Answer(NamedTuple):
    """The cost of a completion, in tokens and seconds."""

    prompt: int
    cached: int
    outputs: int
    seconds: float
    ended_s: float  # monotonic


class Server:
    """Started by `running`; `log` is all it said."""

    def __init__(
        self,
        folder: Path,
        policy: str,
        *flags: str,
        environment: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> None:
        self.port = port if port is not None else free_ports(1)[0]
        self._log = folder / f"{policy}.log"
        command = [
            PYTHON, "-m", "sglang.launch_server",
            "--model-path", str(demo_model()), "--served-model-name", "demo",
            "--host", HOST, "--port", str(self.port), *CPU_FLAGS, *SMALL,
            "--schedule-policy", policy, "--enable-cache-report", "--enable-metrics", *flags,
        ]  # fmt: skip
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                env={**os.environ, **ENVIRONMENT, **(environment or {})},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        """Return the log, without the line that repeats all settings."""
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(line for line in lines if "server_args=" not in line)

    def stop(self) -> None:
        """The whole group, and gone when this returns."""
        process_group.end(self.process, within_s=STOP_TIMEOUT_S)

    def wait_until_it_answers(self) -> None:
        """A log line or an open port proves nothing: only a completion does."""
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline_s:
            assert self.process.poll() is None, self.log[-4000:]
            with contextlib.suppress(OSError, http.client.HTTPException):
                self.complete("ready?", max_tokens=1)
                return
            time.sleep(0.5)
        raise AssertionError(self.log[-4000:])

    def post(self, path: str, body: object, **headers: str) -> http.client.HTTPResponse:
        """Send a request; the answer is not read yet. Raises OSError."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=CALL_TIMEOUT_S)
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(
            "POST", path, json.dumps(body), {"Content-Type": "application/json", **headers}
        )
        return connection.getresponse()

    def complete(
        self,
        prompt: str | list[int],
        *,
        client: str | None = None,
        max_tokens: int = 16,
        **more: Any,
    ) -> Answer:
        """A completion to its end, on behalf of `client`. Raises OSError."""
        body = {"model": "demo", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
        body["ignore_eos"] = True
        headers = {} if client is None else {"x_smg_routing_key": client}
        started_s = time.monotonic()
        response = self.post("/v1/completions", {**body, **more}, **headers)
        said = response.read()
        assert response.status == 200, said
        ended_s = time.monotonic()
        usage = json.loads(said)["usage"]
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        return Answer(
            usage["prompt_tokens"], cached, usage["completion_tokens"], ended_s - started_s, ended_s
        )

    def forget(self) -> None:
        """Empty the prefix cache; only done while the engine is idle."""
        until(lambda: self.post("/flush_cache", {}).status == 200)

    def settle(self) -> None:
        """Return once /metrics shows all charges so far.

        The engine may write it after it has answered, and the totals after the clients; but all of that
        before it hears of what is asked next. So the second of two completions is written after it.
        """
        name = "fairhit_output_tokens_total"
        for _ in range(2):
            before = self.counters(name).get(WITNESS, 0.0)
            self.complete("is it written?", client=WITNESS, max_tokens=1)
            until(lambda before=before: self.counters(name).get(WITNESS, 0.0) > before)

    def counters(self, name: str) -> dict[str, float]:
        """Our series of that name on the engine's own /metrics, by client ("" for none)."""
        return counters(self.port, name)


def counters(port: int, name: str) -> dict[str, float]:
    """See `Server.counters`: of whatever engine listens at `port`."""
    connection = http.client.HTTPConnection(HOST, port, timeout=CALL_TIMEOUT_S)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    found: dict[str, float] = {}
    for labels, value in re.findall(rf"^{name}(?:\{{(.*?)\}})? (\S+)$", text, re.MULTILINE):
        client = re.search(r'client="(.*?)"', labels)
        key = client[1] if client else ""
        found[key] = found.get(key, 0.0) + float(value)
    return found


def until(true: Callable[[], object]) -> None:
    """Wait until it is, looking often."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


@contextlib.contextmanager
def running(
    folder: Path, policy: str, *flags: str, environment: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """A server that answers; stopped at the end."""
    server = Server(folder, policy, *flags, environment=environment)
    try:
        server.wait_until_it_answers()
        yield server
    finally:
        server.stop()
