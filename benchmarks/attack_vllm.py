"""A tenant with a long cached prefix beside a tenant that chats, on a real vLLM: who gets its time.

    python -m benchmarks.attack_vllm

The engine runs in a process of its own for each row, with the plug-in, on CPU: a Llama of two layers and
random weights, so that attention over a long context outweighs the rest of a pass. Both tenants always have
more requests at the engine than it has slots. The chat tenant's requests share nothing; its rival is a clone
of it, or asks again and again behind one long prefix, which is cached but for the last token.

Seconds are CPU seconds of the engine's process, which has one thread: those of a pass do not depend on what
else the machine does. `chat_share_of_seconds` is the engine's own counter `fairhit_engine_seconds_total`: the
duration of each pass, divided by the fit of pass times. `chat_share_by_counts` divides the same passes by
another model, fitted here by least squares: so many seconds for each prompt token and each output of either
tenant, whatever its context. The charge is what the policy counted. Caveat first: seconds hold for this model
and machine; what they show is which policy follows them.
"""

import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.gpu.model_folder import write_model
from benchmarks.record import write_rows
from fairhit.cli.parser import OneLineParser
from fairhit.engines.client_metrics import MULTIPROC_DIR
from fairhit_lab.sim.hardware.models import TransformerModel

ROOT = Path(__file__).resolve().parents[1]
POLICIES = ("dlpm", "fair")
CHAT, CLONE, LONG = "chat", "clone", "long-context"
SLOTS, CALLERS = 8, 12  # running requests; requests that each tenant keeps at the engine
PROMPT, OWN, OUTPUTS = 200, 1, 20
QUANTUM = 1024
BLOCK, BATCH = 32, 2048
SHAPE = TransformerModel(
    layers=2, d=128, heads=4, kv_heads=4, head_dim=64, ffn=256, vocab=2048, tied_head=False
)
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR", "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "4", "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}  # fmt: skip
COUNTERS = {
    "seconds": "fairhit_engine_seconds_total", "charge": "fairhit_charged_tokens_total",
    "outputs": "fairhit_output_tokens_total", "cached": "fairhit_cached_tokens_total",
}  # fmt: skip


class Load(NamedTuple):
    """A row's run. `rival` is CLONE or LONG; `prefix` its cached tokens.

    `warm_up_s` counts from the first answer to the rival, whose prefix is cached then. CPU seconds.
    """

    policy: str
    rival: str
    prefix: int
    seed: int
    warm_up_s: float
    seconds: float


class Pass(NamedTuple):
    """The duration of a pass, and each client's prompt tokens and outputs in it."""

    seconds: float
    extend: Mapping[str, int]
    decodes: Mapping[str, int]


def make_engine(folder: Path, load: Load) -> Any:
    """Start a vLLM of this process with the plug-in."""
    from vllm import EngineArgs, LLMEngine

    longest = load.prefix + PROMPT + OUTPUTS
    write_model(folder, SHAPE, positions=longest + BATCH, dtype="float32")
    # Twice the prefix, and 64 chats: or chats would evict it while its tenant is in debt for it, as dlpm
    # locks it out for that long.
    blocks = 2 * (load.prefix // BLOCK) + 64 * (1 + (PROMPT + OUTPUTS) // BLOCK)
    return LLMEngine.from_engine_args(
        EngineArgs(
            model=str(folder), load_format="dummy", dtype="float32", skip_tokenizer_init=True,
            max_model_len=longest, max_num_seqs=SLOTS, max_num_batched_tokens=BATCH,
            enforce_eager=True, enable_prefix_caching=True, async_scheduling=False,
            block_size=BLOCK, num_gpu_blocks_override=blocks,
            distributed_executor_backend="uni", disable_log_stats=True,
            scheduler_cls="fairhit.engines.vllm.FairScheduler",
            additional_config={"fairhit": {"scheduler": load.policy, "quantum": QUANTUM}},
        )
    )  # fmt: skip


def prompts(load: Load, client: str) -> Iterator[list[int]]:
    """Yield prompts of a tenant without end."""
    rng = random.Random(f"{load.seed} {client}")
    words = range(10, SHAPE.vocab)
    prefix = rng.choices(words, k=load.prefix) if client == LONG else []
    while True:
        yield [*prefix, *rng.choices(words, k=OWN if client == LONG else PROMPT)]


def passes_seen(into: list[Pass]) -> None:
    """Let the plug-in measure passes in CPU seconds, and add each from now on to `into`."""
    from fairhit.engines.pass_meter import PassMeter
    from fairhit.engines.vllm.passes import StepTimes

    StepTimes.__init__.__defaults__ = (time.process_time,)

    observe = PassMeter.observe

    def seen(self: PassMeter, works: Any, seconds: float) -> dict[Any, float]:
        extend = {client: work.extend for client, work in works.items()}
        into.append(Pass(seconds, extend, {c: work.decodes for c, work in works.items()}))
        return observe(self, works, seconds)

    PassMeter.observe = seen  # type: ignore[method-assign]


def share_by_counts(passes: list[Pass], rival: str) -> float:
    """Return the chat tenant's share by a fit of seconds to each tenant's prompt tokens and outputs.

    The fixed part of a pass is divided by tokens.
    """
    import numpy as np

    names = (CHAT, rival)
    rows = np.array(
        [
            [1.0, *(p.extend.get(c, 0) for c in names), *(p.decodes.get(c, 0) for c in names)]
            for p in passes
        ]
    )
    seconds = np.array([each.seconds for each in passes])
    price = np.linalg.lstsq(rows / seconds[:, None], np.ones(len(passes)), rcond=None)[0].clip(0)
    tokens = rows[:, 1:3] + rows[:, 3:5]
    fixed = (price[0] * tokens / tokens.sum(axis=1, keepdims=True)).sum(axis=0)
    chat, other = (
        fixed + rows[:, 1:3].sum(axis=0) * price[1:3] + rows[:, 3:5].sum(axis=0) * price[3:5]
    )
    return float(chat / (chat + other))


def counters(client: str) -> dict[str, float]:
    """Return the plug-in's counters of a client, by the names of COUNTERS."""
    from prometheus_client import REGISTRY

    return {
        name: REGISTRY.get_sample_value(metric, {"client": client}) or 0.0
        for name, metric in COUNTERS.items()
    }


def run(load: Load) -> dict[str, Any]:
    """Run one load on an engine of its own, in this process; return the row."""
    from vllm import SamplingParams

    passes: list[Pass] = []
    passes_seen(passes)
    with TemporaryDirectory() as folder:
        engine = make_engine(Path(folder) / "model", load)
    tenants = {client: prompts(load, client) for client in (CHAT, load.rival)}
    number = itertools.count()

    def send(client: str) -> None:
        answer = SamplingParams(
            max_tokens=OUTPUTS, ignore_eos=True, temperature=0, detokenize=False,
            extra_args={"fair_client": client},
        )  # fmt: skip
        prompt = {"prompt_token_ids": next(tenants[client])}
        engine.add_request(f"{client}/{next(number)}", prompt, answer)

    def step() -> set[str]:
        answered = [each.request_id.partition("/")[0] for each in engine.step() if each.finished]
        for client in answered:
            send(client)
        return set(answered)

    def step_until(deadline_s: float) -> None:
        while time.process_time() < deadline_s:
            step()

    for client in list(tenants) * CALLERS:
        send(client)
    while load.rival not in step():
        pass
    step_until(time.process_time() + load.warm_up_s)
    before, first = {client: counters(client) for client in tenants}, len(passes)
    begun_s = time.process_time()
    step_until(begun_s + load.seconds)
    lasted_s = time.process_time() - begun_s
    got = {
        client: {name: value - before[client][name] for name, value in counters(client).items()}
        for client in tenants
    }
    return row_of(load, got[CHAT], got[load.rival], passes[first:], lasted_s)


def row_of(
    load: Load,
    chat: Mapping[str, float],
    rival: Mapping[str, float],
    passes: list[Pass],
    lasted_s: float,
) -> dict[str, Any]:
    """Return the row of a run from what both tenants received in its window."""
    shares = {
        f"chat_share_of_{name}": round(chat[name] / (chat[name] + rival[name]), 4)
        for name in ("seconds", "charge")
    }
    return {
        "policy": load.policy, "rival": load.rival, "prefix": load.prefix, "seed": load.seed,
        **shares,
        "chat_share_by_counts": round(share_by_counts(passes, load.rival), 4),
        "chat_outputs_per_s": round(chat["outputs"] / lasted_s, 1),
        "rival_outputs_per_s": round(rival["outputs"] / lasted_s, 1),
        "rival_cached_tokens_per_s": round(rival["cached"] / lasted_s),
        "passes": len(passes),
        "share_of_window_in_passes": round(sum(each.seconds for each in passes) / lasted_s, 3),
    }  # fmt: skip


def run_apart(load: Load) -> dict[str, Any]:
    """Run one load in a process of its own, and return its row. Raises CalledProcessError."""
    command = [sys.executable, "-m", "benchmarks.attack_vllm", "--one", json.dumps(load)]
    with TemporaryDirectory() as counted:
        environment = {**os.environ, **ENVIRONMENT, MULTIPROC_DIR: counted}
        said = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True
        ).stdout
    row: dict[str, Any] = json.loads(said.splitlines()[-1])
    return row


def slowdowns(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row per policy and prefix: medians, and the chat tenant's slowdown against its clone."""
    of: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for row in rows:
        of.setdefault((row["policy"], row["rival"], row["prefix"]), []).append(row)
    found = []
    for (policy, rival, prefix), some in of.items():
        beside = of.get((policy, CLONE, 0))
        if rival == CLONE or not beside:
            continue
        alone = median(row["chat_outputs_per_s"] for row in beside)
        shares = sorted(round(1 - row["chat_share_of_seconds"], 3) for row in some)
        found.append(
            {
                "policy": policy, "prefix": prefix, "runs": len(some),
                "rival_share_of_seconds": [median(shares), shares[0], shares[-1]],
                "slowdown": round(alone / median(row["chat_outputs_per_s"] for row in some), 2),
            }
        )  # fmt: skip
    return found


def main() -> None:
    """Measure, print, and write the rows after each run."""
    parser = OneLineParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up", type=float, default=15.0, help="seconds before the window")
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--prefixes", nargs="+", type=int, default=(0, 4_000, 30_000))
    parser.add_argument("--policies", nargs="+", default=POLICIES)
    parser.add_argument("--one", help="one load, as JSON: used by this program itself")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(run(Load(*json.loads(options.one)))))
        return
    rivals = [(CLONE, 0), *((LONG, prefix) for prefix in options.prefixes)]
    rows: list[dict[str, Any]] = []
    for seed, (rival, prefix), policy in itertools.product(
        range(options.rounds), rivals, options.policies
    ):
        load = Load(policy, rival, prefix, seed, options.warm_up, options.seconds)
        rows.append(run_apart(load))
        print(rows[-1], flush=True)
        settings = {"slots": SLOTS, "callers": CALLERS, "outputs": OUTPUTS, "quantum": QUANTUM}
        write_rows("attack_vllm", rows, medians=slowdowns(rows), **settings)
    for row in slowdowns(rows):
        print(row, flush=True)


if __name__ == "__main__":
    main()
