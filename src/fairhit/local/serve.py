"""The embedded service: local engines behind a gateway, started, supervised and stopped together."""

import asyncio
import contextlib
import http.client
import json
import os
import secrets
import shlex
import shutil
import socket
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from fairhit.errors import ConfigError, in_words
from fairhit.gateway.settings import (
    WORKER_KEY_VARIABLE,
    GatewaySettings,
    environment_without_settings,
)
from fairhit.local import engine_process as local
from fairhit.local.supervision import Child, Notify
from fairhit.policies import IN_ENGINES
from fairhit.settings.declaration import setting
from fairhit.settings.kinds import Kind

PROBE_TIMEOUT_S = 5.0
GATEWAY_CONFIG = "gateway.yaml"
# Time for the gateway to exit once its in-flight requests have ended or were cut off, in seconds.
GATEWAY_CLOSING_S = 3.0


def _split_arguments(value: object) -> tuple[str, ...]:
    """The value of `--engine-args`, split as a shell would. Raises ValueError."""
    if not isinstance(value, str):
        return tuple(cast("tuple[str, ...]", value))
    try:
        return tuple(shlex.split(value))
    except ValueError as error:
        raise ValueError(str(error).lower()) from None


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """The settings of `fairhit serve`; `gateway` holds those that concern callers."""

    gateway: GatewaySettings
    engines: int = setting(2, "number of engines", "N", ge=1)
    engine: Literal["vllm"] = setting("vllm", "kind of engine")
    model: str = setting(
        local.DEMO, "directory with a config.json, an ID that vLLM resolves, or the demo model", "DIR|ID"
    )  # fmt: skip
    scheduler: str = setting("dlpm", "policy inside each engine", choices=IN_ENGINES)
    quantum: int | None = setting(
        None, "Q^u of the policy inside each engine", "TOKENS", ge=1, shown="4096"
    )
    engine_arguments: Annotated[tuple[str, ...], Kind("flags", _split_arguments)] = setting(
        (), "more flags for each engine, as one argument; they win over ours", '"ARGS"', flag="engine-args"
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RunningService:
    """A running service: the gateway's address, the engines behind it, and the folder of their logs."""

    host: str
    port: int
    model: str
    engines: Sequence[Child]
    engine_urls: Sequence[str]
    gateway: Child
    folder: Path
    scheme: str = "http"

    @property
    def url(self) -> str:
        """The base URL for callers."""
        host = f"[{self.host}]" if ":" in self.host else self.host  # an IPv6 address
        return f"{self.scheme}://{host}:{self.port}"


@contextlib.asynccontextmanager
async def running(options: ServeOptions, notify: Notify) -> AsyncIterator[RunningService]:
    """Run the whole service for the duration of a `with`; every process answers when the block begins.

    Raises ConfigError before any process is started, and EngineFailed when a process cannot be kept
    running. No process is left behind: a cancellation during the stop only means not to wait for in-flight
    requests.
    """
    local.require_vllm()
    require_free(options.gateway.host, options.gateway.port)
    body = asyncio.current_task()
    assert body is not None
    service = prepare(options, notify)
    processes = ProcessGroup(body)
    try:
        for engine in service.engines:
            processes.start(engine)
        await asyncio.gather(*(engine.ready.wait() for engine in service.engines))
        processes.start(service.gateway)
        await service.gateway.ready.wait()
        yield service
    except asyncio.CancelledError:
        if processes.failure is None:
            raise
        body.uncancel()
        raise processes.failure from None
    finally:
        # The gateway first: in-flight requests need the engines to finish.
        cancelled = await processes.stop([[service.gateway], service.engines])
        clear(service.folder, keep_logs=processes.failure is not None)
        if cancelled and processes.failure is None:
            raise asyncio.CancelledError


class ProcessGroup:
    """Supervised processes; the task `body` is cancelled when one of them cannot be kept running."""

    def __init__(self, body: asyncio.Task[Any]) -> None:
        self.failure: BaseException | None = None
        self._body = body
        self._tasks: dict[Child, asyncio.Task[None]] = {}
        self._stopping = False

    def start(self, child: Child) -> None:
        """Start a process, and restart it when it dies."""
        self._tasks[child] = asyncio.create_task(child.supervise())
        self._tasks[child].add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        if self.failure is None and not self._stopping:
            self.failure = error
            self._body.cancel()  # it may await an event that will never come

    async def stop(self, groups: Sequence[Sequence[Child]]) -> bool:
        """Stop all started processes, one group after the other; return whether this call was cancelled.

        A cancellation does not interrupt the stop, or processes would stay behind: it makes the stop
        immediate.
        """
        self._stopping = True
        ending = asyncio.create_task(self._end(groups))
        cancelled = False
        while not ending.done():
            try:
                await asyncio.wait([ending])
            except asyncio.CancelledError:
                cancelled = True
                for child in self._tasks:
                    child.stop_at_once()
        return cancelled

    async def _end(self, groups: Sequence[Sequence[Child]]) -> None:
        for group in groups:
            tasks = [self._tasks[child] for child in group if child in self._tasks]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def prepare(options: ServeOptions, notify: Notify) -> RunningService:
    """Make every process of the service, not started, and a folder for them. Raises ConfigError."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="fairhit-"))
    except OSError as error:
        raise ConfigError(f"no folder for logs and settings: {in_words(error)}") from None
    try:
        return arrange(options, folder, notify)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise ConfigError(f"cannot write settings: {in_words(error)}") from None
        raise


def clear(folder: Path, *, keep_logs: bool) -> None:
    """Remove the folder, or with `keep_logs` only the gateway's settings, which hold tenants' keys."""
    if not keep_logs:
        shutil.rmtree(folder, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        (folder / GATEWAY_CONFIG).unlink()


def arrange(options: ServeOptions, folder: Path, notify: Notify) -> RunningService:
    """Make every process of the service, not started."""
    *ports, spare = local.free_ports(options.engines + 1, besides=options.gateway.port)
    # Engines accept only our gateway: a direct caller could claim any identity.
    api_key = secrets.token_urlsafe(24)
    engines = local.make_engines(
        local.EngineOptions(
            model=options.model,
            scheduler=options.scheduler,
            quantum=options.quantum,
            weights=options.gateway.weights,
            arguments=options.engine_arguments,
            api_key=api_key,
        ),
        ports=ports,
        folder=folder,
        notify=notify,
    )
    urls = [f"http://{local.HOST}:{port}" for port in ports]
    changes: dict[str, object] = {
        "worker_urls": tuple(urls), "port": options.gateway.port or spare
    }  # fmt: skip
    settings = options.gateway.replaced(**changes)
    return RunningService(
        host=settings.host,
        port=settings.port,
        model=local.find_model(options.model).name,
        engines=engines,
        engine_urls=urls,
        gateway=make_gateway(settings, api_key=api_key, folder=folder, notify=notify),
        folder=folder,
        scheme="http" if settings.tls_cert_path is None else "https",
    )


def make_gateway(settings: GatewaySettings, *, api_key: str, folder: Path, notify: Notify) -> Child:
    """Make the gateway's process; a process of its own is not slowed by this one."""
    # A file that only this user can read: every user of the machine can see flags.
    config = folder / GATEWAY_CONFIG
    config.touch(mode=0o600)
    content = settings.replaced(worker_api_key=None).as_json()
    config.write_text(json.dumps(content), encoding="utf-8")

    async def is_ready() -> bool:
        return await asyncio.to_thread(_gateway_is_ready, settings)

    return Child(
        name="gateway",
        command=[sys.executable, "-m", "fairhit", "gateway", "--config", str(config)],
        environment={**environment_without_settings(), WORKER_KEY_VARIABLE: api_key},
        log=folder / "gateway.log",
        probe=is_ready,
        notify=notify,
        grace_s=settings.shutdown_timeout_secs + GATEWAY_CLOSING_S,
    )


def _gateway_is_ready(settings: GatewaySettings) -> bool:
    connection = _connection_to(settings)
    try:
        connection.request("GET", "/readiness")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _connection_to(settings: GatewaySettings) -> http.client.HTTPConnection:
    host, port = settings.host, settings.port
    if settings.tls_cert_path is None:
        return http.client.HTTPConnection(host, port, timeout=PROBE_TIMEOUT_S)
    # The certificate is for the names that callers use; here our own child process answers.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, port, timeout=PROBE_TIMEOUT_S, context=context)


def require_free(host: str, port: int) -> None:
    """Raises ConfigError if the address is not free: before the engines are started, not after."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a host name"
        raise ConfigError(f"--host {host}: {reason}") from None
    # The gateway listens on all of them.
    for family, _, _, _, address in addresses:
        try:
            with socket.create_server(address[:2], family=family):
                pass
        except OSError as error:
            reason = os.strerror(error.errno or 0)  # without the address, which Python adds
            raise ConfigError(f"--port {port}: cannot listen on {host}: {reason}") from None


def examples(service: RunningService, key: str | None) -> str:
    """Return example calls of the service, for curl and Python."""
    secret = f'\n  -H "Authorization: Bearer {key}" \\' if key else ""
    return f"""\
curl {service.url}/v1/chat/completions \\{secret}
  -H "Content-Type: application/json" \\
  -d '{{"model": "{service.model}", "messages": [{{"role": "user", "content": "Hello"}}], "max_tokens": 32}}'

from openai import OpenAI
client = OpenAI(base_url="{service.url}/v1", api_key="{key or "none"}")
stream = client.chat.completions.create(
    model="{service.model}", messages=[{{"role": "user", "content": "Hello"}}], max_tokens=32, stream=True
)
for chunk in stream:
    print(chunk.choices[0].delta.content or "", end="")
"""
