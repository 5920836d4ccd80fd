"""The embedded service: local engines with the gateway in front, started, kept and stopped together."""

import asyncio
import contextlib
import http.client
import json
import os
import secrets
import shlex
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairlead.engines import local
from fairlead.engines.supervision import Child, Tell
from fairlead.errors import ConfigError
from fairlead.gateway.settings import WORKER_KEY_VARIABLE, GatewaySettings

PROBE_TIMEOUT_S = 5.0


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """What `fairlead serve` was asked for; `gateway` holds everything that concerns callers."""

    gateway: GatewaySettings
    engines: int = 2
    model: str = local.DEMO
    scheduler: str = "dlpm"
    quantum: int | None = None
    engine_arguments: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Service:
    """What is running: the gateway's address, the engines behind it, and where they log."""

    host: str
    port: int
    model: str
    engines: Sequence[Child]
    engine_urls: Sequence[str]
    gateway: Child
    folder: Path

    @property
    def url(self) -> str:
        """Where callers find it."""
        return f"http://{self.host}:{self.port}"


@contextlib.asynccontextmanager
async def running(options: ServeOptions, tell: Tell) -> AsyncIterator[Service]:
    """The whole service for the length of a `with`; everything answers when it begins.

    Raises ConfigError before anything is started, and EngineFailed when a part cannot be kept
    running. Nothing is left behind, however it ends.
    """
    local.require_vllm()
    if options.gateway.port:
        require_free(options.gateway.host, options.gateway.port)
    folder = Path(tempfile.mkdtemp(prefix="fairlead-"))
    try:
        service = arrange(options, folder, tell)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    failures: list[BaseException] = []
    body = asyncio.current_task()
    assert body is not None

    def given_up(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            failures.append(error)
            body.cancel()  # whatever it awaits will not come any more

    tasks: list[asyncio.Task[None]] = []

    def keep(child: Child) -> None:
        tasks.append(asyncio.create_task(child.keep()))
        tasks[-1].add_done_callback(given_up)

    try:
        for engine in service.engines:
            keep(engine)
        await asyncio.gather(*(engine.ready.wait() for engine in service.engines))
        keep(service.gateway)
        await service.gateway.ready.wait()
        yield service
    except asyncio.CancelledError:
        if not failures:
            raise
        body.uncancel()
        raise failures[0] from None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Logs are for finding out what went wrong; nothing did.
        if not failures:
            shutil.rmtree(folder, ignore_errors=True)


def arrange(options: ServeOptions, folder: Path, tell: Tell) -> Service:
    """Every part of the service, none of it started."""
    *ports, spare = local.free_ports(options.engines + 1)
    # Only our gateway may speak to the engines: whoever reached one directly could claim any identity.
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
        tell=tell,
    )
    urls = [f"http://{local.HOST}:{port}" for port in ports]
    changes = {"worker_urls": tuple(urls), "port": options.gateway.port or spare}
    settings = options.gateway.model_copy(update=changes)
    return Service(
        host=settings.host,
        port=settings.port,
        model=local.find_model(options.model).name,
        engines=engines,
        engine_urls=urls,
        gateway=make_gateway(settings, api_key=api_key, folder=folder, tell=tell),
        folder=folder,
    )


def make_gateway(settings: GatewaySettings, *, api_key: str, folder: Path, tell: Tell) -> Child:
    """The gateway as a process of its own: what it does for callers is not slowed by us."""
    # A file that only we can read, not flags: every user of the machine can see those.
    config = folder / "gateway.yaml"
    config.touch(mode=0o600)
    content = settings.model_dump(mode="json", exclude_none=True, exclude={"worker_api_key"})
    config.write_text(json.dumps(content), encoding="utf-8")

    async def is_ready() -> bool:
        return await asyncio.to_thread(_gateway_is_ready, settings)

    return Child(
        name="gateway",
        command=[sys.executable, "-m", "fairlead", "gateway", "--config", str(config)],
        environment={**os.environ, WORKER_KEY_VARIABLE: api_key},
        log=folder / "gateway.log",
        probe=is_ready,
        tell=tell,
    )


def _gateway_is_ready(settings: GatewaySettings) -> bool:
    connection = http.client.HTTPConnection(settings.host, settings.port, timeout=PROBE_TIMEOUT_S)
    try:
        connection.request("GET", "/readiness")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def require_free(host: str, port: int) -> None:
    """Find out before the engines are started, not half a minute later. Raises ConfigError."""
    try:
        with socket.create_server((host, port)):
            pass
    except OSError as error:
        raise ConfigError(f"--port {port}: cannot listen on {host}: {error.strerror}") from None


def split_arguments(text: str) -> tuple[str, ...]:
    """`--engine-args` as a shell would split it. Raises ConfigError."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigError(f"--engine-args: {str(error).lower()}") from None


def examples(service: Service, key: str | None) -> str:
    """What to type to see it work."""
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
