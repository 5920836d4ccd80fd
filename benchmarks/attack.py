"""A tenant with a long cached prefix beside a tenant that chats, on a real engine: who gets its time.

    FAIRHIT_SGLANG=.venvs/sglang/bin/python python -m benchmarks.attack

A real SGLang server of the demo model on CPU, on which attention over a long context outweighs the rest. Both
tenants always have more requests waiting than the engine has slots. The chat tenant's requests share nothing;
its rival is a clone of it, or sends one long prompt again and again, which is cached but for its last token.
Each load has a fresh server, so that the fit of pass times knows nothing else. The warm-up must last some
hundred passes: prices are fitted every 64, and change by a factor of 2 at most.

SGLang's torch_native attention computes a prefill's cached rows, too, and drops them: a prompt of which one
token is new takes as long as if none was cached, which the fit of pass times cannot express. What the fit
does not see is attributed to the clients that prefill in the same pass, the chat tenant above all. So answers
are long here, 200 outputs: eight sequences behind the long prompt decode about six times as slowly as eight
behind short ones. Overlap scheduling is off, so that no pass waits for the result of another.

Engine seconds are the engine's own counter `fairhit_engine_seconds_total`: the wall time of each pass,
divided among the clients by the work that each has in it. A fair policy gives each tenant half of them, and
the chat tenant as many outputs as beside its clone.
"""

import contextlib
import itertools
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.sglang.server import Server, running

from benchmarks.one_engine import SGLANG, sglang_version
from benchmarks.record import write_rows
from fairhit.cli.parser import OneLineParser
from fairhit.local.demo_model import CONTEXT, VOCABULARY

POLICIES = ("dlpm", "fair")
CHAT, CLONE, LONG = "chat", "clone", "long-context"
SLOTS = 8
CALLERS = 12  # of each tenant
PROMPT, OUTPUTS = 50, 200
PREFIX = 3_000  # of the rival's long prompt, cached
QUANTUM = 1024
FLAGS = (
    "--max-running-requests", str(SLOTS), "--max-total-tokens", "16000",
    "--context-length", str(CONTEXT), "--chunked-prefill-size", "2048", "--disable-overlap-schedule",
)  # fmt: skip
SECONDS, CHARGE, HITS = (
    "fairhit_engine_seconds_total", "fairhit_charged_tokens_total", "fairhit_cached_tokens_total",
)  # fmt: skip
OUTPUT = "fairhit_output_tokens_total"

Prompts = Callable[[random.Random], list[int]]


class Tenant(NamedTuple):
    """A client, by the name that it has in one load, and its prompts."""

    client: str
    prompt: Prompts


def chat_prompt(rng: random.Random) -> list[int]:
    return rng.choices(range(10, VOCABULARY), k=PROMPT)


def long_prompt(seed: int, length: int) -> Prompts:
    prefix = random.Random(f"{seed} prefix").choices(range(10, VOCABULARY), k=length)
    return lambda rng: [*prefix, rng.randrange(10, VOCABULARY)]


@contextlib.contextmanager
def asking(server: Server, tenants: tuple[Tenant, ...], seed: int) -> Iterator[None]:
    """Keep CALLERS requests of each tenant at the server for as long as the `with` lasts."""
    is_over = threading.Event()
    failures: list[Exception] = []

    def call(tenant: Tenant, number: int) -> None:
        rng = random.Random(f"{seed} {tenant.client} {number}")
        try:
            while not is_over.is_set():
                server.complete(tenant.prompt(rng), client=tenant.client, max_tokens=OUTPUTS)
        except (OSError, AssertionError) as error:
            failures.append(error)

    threads = [
        threading.Thread(target=call, args=(tenant, number))
        for tenant, number in itertools.product(tenants, range(CALLERS))
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert not failures, failures[:3]


def run(server: Server, policy: str, rival: str, seed: int, load: "Load") -> dict[str, Any]:
    """Run one load on a fresh server; return what each tenant received in the window."""
    prompt = chat_prompt if rival == CLONE else long_prompt(seed, load.prefix)
    names = (SECONDS, CHARGE, OUTPUT, HITS)
    with asking(server, (Tenant(CHAT, chat_prompt), Tenant(rival, prompt)), seed):
        time.sleep(load.warm_up_s)
        before, begun_s = [server.counters(name) for name in names], time.monotonic()
        time.sleep(load.seconds)
        after, lasted_s = [server.counters(name) for name in names], time.monotonic() - begun_s

    def received(client: str) -> list[float]:
        pairs = zip(before, after, strict=True)
        return [end.get(client, 0.0) - start.get(client, 0.0) for start, end in pairs]

    of_chat, of_rival = received(CHAT), received(rival)
    row = {
        "engine": SGLANG, "policy": policy, "rival": rival, "seed": seed,
        "chat_share_of_seconds": share(of_chat[0], of_rival[0]),
        "chat_share_of_charge": share(of_chat[1], of_rival[1]),
        "chat_outputs_per_s": round(of_chat[2] / lasted_s, 1),
        "rival_outputs_per_s": round(of_rival[2] / lasted_s, 1),
        "rival_cached_tokens_per_s": round(of_rival[3] / lasted_s),
        "seconds_measured": round((of_chat[0] + of_rival[0]) / lasted_s, 3),
    }  # fmt: skip
    print(row, flush=True)
    return row


def share(part: float, rest: float) -> float:
    return round(part / (part + rest), 4)


class Load(NamedTuple):
    """What the command line says of the loads."""

    prefix: int
    warm_up_s: float
    seconds: float


def main() -> None:
    parser = OneLineParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up", type=float, default=90.0, help="seconds before the window")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--prefix", type=int, default=PREFIX, help="tokens of the long prompt")
    parser.add_argument("--policies", nargs="+", default=POLICIES)
    parser.add_argument("--rivals", nargs="+", default=(CLONE, LONG))
    parser.add_argument("--dry", action="store_true", help="write no results")
    options = parser.parse_args()
    # Servers are sessions of their own: who only ends this process would leave them running.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    load_at_start = round(os.getloadavg()[0], 2)
    load = Load(options.prefix, options.warm_up, options.seconds)
    environment = {"FAIRHIT_QUANTUM": str(QUANTUM), "FAIRHIT_AUDIT": "0"}
    rows: list[dict[str, Any]] = []
    for seed, policy, rival in itertools.product(
        range(options.rounds), options.policies, options.rivals
    ):
        with (
            tempfile.TemporaryDirectory() as folder,
            running(Path(folder), policy, *FLAGS, environment=environment) as server,
        ):
            rows.append(run(server, policy, rival, seed, load))
        if not options.dry:
            settings = {
                "slots": SLOTS, "callers": CALLERS, "prompt": PROMPT, "outputs": OUTPUTS,
                "quantum": QUANTUM, "load_at_start": load_at_start, **load._asdict(),
            }  # fmt: skip
            write_rows("attack", rows, sglang=sglang_version(), **settings)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
