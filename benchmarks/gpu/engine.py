"""Schedulers compared on a real engine: dummy weights of a model's shape, our workloads, token by token.

    python -m benchmarks.gpu.engine --model llama-3.1-8b --out results/gpu [--seconds 300] [--seeds 5]

Needs a CUDA vLLM 0.24 or later with this repository on the path (httptools, orjson and prometheus-client
beside it), no network and no weights. Writes rows as a study's: throughput, Jain's index in both views,
hit rate, P50 and P99 of the clients that behave, and the throughput of the one that does not. Caveat first: a
request counts as admitted when its first token comes, and a run ends when everybody is served, so that there
are no shares of entitlement. Each engine has an unmeasured run first.
On a CPU `--model toy` tries the script.
"""

import argparse
import asyncio
import json
import secrets
import sys
from collections.abc import Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.gpu.model_folder import write_model
from benchmarks.gpu.replay import Replay, Tokens, outcome_of
from fairhit.cli.parser import OneLineParser
from fairhit.errors import ConfigError, FairhitError
from fairhit.local import engine_process as local
from fairhit.local import provenance
from fairhit.local.supervision import Child
from fairhit_lab.report.study_files import require_writable, write_table
from fairhit_lab.sim.hardware.models import MODELS, TransformerModel
from fairhit_lab.studies.dlpm.fig7 import RATES
from fairhit_lab.studies.shared import measures
from fairhit_lab.studies.shared.results import Cell
from fairhit_lab.studies.shared.study import Measure
from fairhit_lab.traces.parameters import read_settings
from fairhit_lab.traces.trace import TraceRow, read_trace
from fairhit_lab.workloads import GENERATORS

NAME = "shape"
POLICIES = ("fair", "dlpm", "vtc", "lpm", "fcfs")
WORKLOADS = ("tot-s1", "tot-s2", "judge-s1")
MISBEHAVING = ("c0", "heavy", "long")  # of the workloads with c0, of `flood`, of `cached-prefix`
# As in the simulated Figure 7, where one A100 has its hands full with them.
SETTINGS: dict[str, dict[str, Any]] = {
    f"{workload}-{kind}": {"clients": 3, "rates": rates}
    for (workload, kind), rates in RATES.items()
}
WARM_UP_S = 30.0  # of arrivals
# No model of anybody's; vLLM's attention on a CPU wants heads of 64.
TOY = TransformerModel(layers=2, d=128, heads=2, kv_heads=1, head_dim=64, ffn=256, vocab=2048)
SHAPES = {**MODELS, "toy": TOY}
POSITIONS = 8192  # at least; more where a prompt needs them
TOY_BLOCKS, TOY_RUNNING = 128, 4  # blocks of 32 tokens
MEASURES: dict[str, Measure] = {
    **measures.in_summary(
        "throughput", "tokens_per_s", "jain_client", "jain_system", "hit_rate", "makespan_s"
    ),
    "ttft_p50_s": measures.ttft("p50_s", without=MISBEHAVING),
    "ttft_p99_s": measures.ttft("p99_s", without=MISBEHAVING),
    "program_p50_s": measures.program_completion("p50_s", without=MISBEHAVING),
    "program_p99_s": measures.program_completion("p99_s", without=MISBEHAVING),
    "heavy_service_per_s": lambda outcome: heavy_service_per_s(outcome.summary),
}


def heavy_service_per_s(summary: Mapping[str, Any]) -> float:
    """Return the service of the clients that misbehave, input + 2 * output tokens, per second of the run."""
    clients = summary["clients"]
    served = sum(clients[name]["service"]["client"] for name in MISBEHAVING if name in clients)
    return float(served / summary["makespan_s"])


def command(options: argparse.Namespace, policy: str, model: Path, port: int) -> list[str]:
    """The engine, with the plug-in and without weights."""
    settings: dict[str, object] = {"scheduler": policy}
    if policy == "dlpm":
        settings["quantum"] = options.quantum
    toy = ("--num-gpu-blocks-override", str(TOY_BLOCKS), "--max-num-seqs", str(TOY_RUNNING),
           "--max-model-len", "2048")  # fmt: skip
    return [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server",
        "--host", local.HOST, "--port", str(port), "--model", str(model), "--served-model-name", NAME,
        "--load-format", "dummy", "--enable-prefix-caching", "--enable-prompt-tokens-details",
        "--scheduler-cls", "fairhit.engines.vllm.FairScheduler",
        "--additional-config", json.dumps({"fairhit": settings}),
        "--uvicorn-log-level", "warning",
        # Said here as well: vLLM makes bfloat16 of a folder of float32, and may choose AMX instructions that
        # a virtual machine names and does not run.
        *((*local.CPU_FLAGS, "--dtype", "float32") if local.runs_on_cpu() else ()),
        *(toy if options.model == "toy" else ()),
        *options.arguments,
    ]  # fmt: skip


@asynccontextmanager
async def engine(options: argparse.Namespace, policy: str, model: Path, folder: Path) -> Any:
    """Started and answering; port and key. Raises EngineFailed when it does not come up."""
    (port,), key = local.free_ports(1), secrets.token_hex(8)
    about = local.EngineOptions(model=str(model), scheduler=policy, api_key=key)
    found = local.ServedModel(source=str(model), name=NAME)

    async def answers() -> bool:
        return await asyncio.to_thread(local.completes, port, NAME, key)

    child = Child(
        name=f"engine with {policy}",
        command=command(options, policy, model, port),
        environment=local.environment(about, found, folder / "counters"),
        log=folder / f"{policy}.log",
        probe=answers,
        notify=lambda name, event: print(f"{name}: {event}", flush=True),
        before_start=lambda: (folder / "counters").mkdir(exist_ok=True),
    )
    supervising = asyncio.create_task(child.supervise())
    ready = asyncio.create_task(child.ready.wait())
    try:
        await asyncio.wait({supervising, ready}, return_when=asyncio.FIRST_COMPLETED)
        if supervising.done():
            supervising.result()
        yield port, key
    finally:
        ready.cancel()
        supervising.cancel()
        await asyncio.gather(supervising, ready, return_exceptions=True)


def trace(
    options: argparse.Namespace, workload: str, seed: int, most_s: float = float("inf")
) -> list[TraceRow]:
    """The rows of a trace file, or the generator's: its settings are ours, but for those of `--set`."""
    if workload not in GENERATORS:
        rows = read_trace(workload)
        return [row for row in rows if row.arrival_us <= 1e6 * min(options.seconds, most_s)]
    generator, settings = GENERATORS[workload], options.settings[workload]
    if "duration" in generator.settings():
        settings = {"duration": min(options.seconds, most_s), **settings}
    return list(generator.rows(Random(seed), **settings))


def positions(options: argparse.Namespace) -> int:
    """Return how many tokens the model must take: the longest prompt of a run with its answer."""
    asked = (
        len(row.prompt) + row.max_tokens
        for workload in options.workloads
        for seed in range(1 if workload not in GENERATORS else options.seeds)
        for row in trace(options, workload, seed)
    )
    return max(POSITIONS, *asked)


async def runs(options: argparse.Namespace, model: Path, folder: Path) -> Any:
    """A row a run: an engine a policy, all workloads and seeds on it, of clients that it never saw."""
    for policy in options.policies:
        async with engine(options, policy, model, folder) as (port, key):

            async def replayed(rows: list[TraceRow], space: str) -> Replay:
                tokens = Tokens(SHAPES[options.model].vocab, space)
                replay = Replay(
                    rows, host=local.HOST, port=port, key=key, model=NAME, tokens=tokens, space=space
                )  # fmt: skip
                await replay.run(options.timeout)
                return replay

            # Whatever an engine compiles or allocates when it first works, no row has it.
            warm_up = trace(options, options.workloads[0], options.seeds, WARM_UP_S)
            await replayed(warm_up, "warm-up")
            for workload in options.workloads:
                name = Path(workload).name
                for seed in range(options.seeds):
                    replay = await replayed(trace(options, workload, seed), f"{name}/{seed}")
                    outcome = outcome_of(replay.finished, replay.begin_us)
                    yield {
                        "workload": name, "policy": policy, "seed": seed,
                        "requests": len(replay.finished),
                        **{name: of(outcome) for name, of in MEASURES.items()},
                    }  # fmt: skip


async def measure(options: argparse.Namespace) -> list[dict[str, Cell]]:
    """Run everything, and write the results after each run, as hours may be lost otherwise."""
    require_writable(options.out)
    about = {
        **provenance.of_this_run(), "model": options.model, "quantum": options.quantum,
        "seconds": options.seconds, "settings": options.settings, "arguments": options.arguments,
        "gpu": gpu_name(),
    }  # fmt: skip
    (options.out / "about.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    rows: list[dict[str, Cell]] = []
    with TemporaryDirectory(prefix="fairhit-shape-") as made:
        model = Path(made) / "model"
        dtype = "float32" if local.runs_on_cpu() else "bfloat16"
        write_model(model, SHAPES[options.model], positions=positions(options), dtype=dtype)
        async for row in runs(options, model, Path(made)):
            rows.append(row)
            write_table(options.out / "rows.csv", list(row), (list(each.values()) for each in rows))
            print(" ".join(f"{name}={_short(value)}" for name, value in row.items()), flush=True)
    return rows


def gpu_name() -> str:
    """As CUDA calls it."""
    import torch

    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else "none"


def _short(value: Cell) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 1 if an engine failed, 2 if the command was wrong; what was measured is written."""
    try:
        asyncio.run(measure(parse(argv)))
    except ConfigError as error:
        print(f"engine: {error}", file=sys.stderr)
        return 2
    except FairhitError as error:
        print(f"engine: {error}", file=sys.stderr)
        return 1
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line; what follows `--` goes to the engine. Raises ConfigError."""
    parser = OneLineParser(prog="benchmarks.gpu.engine")
    parser.add_argument("--model", choices=sorted(SHAPES), default="llama-3.1-8b")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--policies", nargs="+", default=POLICIES, choices=POLICIES)
    parser.add_argument(
        "--workloads", nargs="+", default=WORKLOADS, metavar="WORKLOAD",
        help="a generator's name, or a trace file of ours (`fairhit trace import`)",
    )  # fmt: skip
    parser.add_argument("--seconds", type=float, default=300, help="of arrivals")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quantum", type=int, default=4096, help="DLPM's, in tokens of service")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds that one run may take")
    parser.add_argument(
        "--set", dest="given", nargs="+", action="extend", default=[], metavar="WORKLOAD.KEY=VALUE",
        help="such as tot-s1.rates=0.2,0.1 (`fairhit trace generate WORKLOAD --settings`)",
    )  # fmt: skip
    parser.add_argument("arguments", nargs="*", metavar="-- FLAGS", help="of the engine")
    options = parser.parse_args(argv)
    for flag, number in (("--seeds", options.seeds), ("--seconds", options.seconds)):
        if number <= 0:
            raise ConfigError(f"{flag}: expected a number above 0, got {number}")
    for workload in options.workloads:
        if workload not in GENERATORS and not Path(workload).is_file():
            raise ConfigError(
                f"--workloads {workload}: expected a file or one of {', '.join(sorted(GENERATORS))}"
            )
    options.settings = settings_of(options.workloads, options.given)
    return options


def settings_of(workloads: Sequence[str], given: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return each workload's parameters: ours, overridden by `--set`. Raises ConfigError."""
    words: dict[str, list[str]] = {workload: [] for workload in workloads}
    for word in given:
        workload, _, setting = word.partition(".")
        if workload not in words or "=" in workload:
            known = ", ".join(workloads)
            raise ConfigError(
                f"--set {word}: expected WORKLOAD.KEY=VALUE with a workload of {known}"
            )
        words[workload].append(setting)
    return {
        workload: SETTINGS.get(workload, {}) | read_settings(GENERATORS[workload].settings(), own)
        for workload, own in words.items()
        if workload in GENERATORS
    }


if __name__ == "__main__":
    sys.exit(main())
