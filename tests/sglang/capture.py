"""Capture of a real SGLang's KV events during requests, for the gateway's unit tests.

    FAIRHIT_SGLANG=.venvs/sglang/bin/python python -m tests.sglang.capture default 1

A file for each format and page size in tests/unit/gateway/prefix/kv_events/captures: a line of JSON for each
prompt that was asked, with what the engine said it had, and one for each message of its KV events, in
hexadecimal.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zmq

from fairhit.local.engine_process import HOST, free_ports
from tests.sglang.server import PATIENCE_S, PYTHON, Server, running

CAPTURES = Path(__file__).parents[1] / "unit" / "gateway" / "prefix" / "kv_events" / "captures"
# Of KV: so few that prompts of the script are evicted.
TOKENS = 256
# All that an engine publishes of one request, published by then.
QUIET_S = 0.5


def published(port: int, replay_port: int, *, form: str = "default") -> tuple[str, str]:
    """The flag that has a server publish at these ports."""
    return "--kv-events-config", json.dumps(
        {
            "publisher": "zmq", "topic": "kv", "format": form, "bind": True,
            "endpoint": f"tcp://{HOST}:{port}", "replay_endpoint": f"tcp://{HOST}:{replay_port}",
        }
    )  # fmt: skip


def script() -> Iterator[dict[str, Any]]:
    """Prompts, each as stretches of consecutive numbers: shared beginnings, salts, and many more than fit."""
    yield {"tokens": [[100, 40]]}
    yield {"tokens": [[100, 40]]}
    yield {"tokens": [[100, 30], [500, 25]]}  # parts from the first in the midst of a page
    yield {"tokens": [[100, 40], [700, 20]]}  # goes on after it
    yield {"tokens": [[100, 40]], "cache_salt": "a"}
    yield {"tokens": [[100, 40]], "cache_salt": "b"}
    yield {"tokens": [[100, 40], [800, 5]], "cache_salt": "a"}
    for number in range(6):
        yield {"tokens": [[100, 30], [1000 + 50 * number, 50]]}
    yield {"tokens": [[100, 40]]}
    yield {"tokens": [[100, 40]], "cache_salt": "b"}
    yield {"flush": True}
    yield {"tokens": [[100, 40]]}
    yield {"tokens": [[100, 40], [900, 33]]}
    yield {"tokens": [[100, 40], [900, 33]]}


def prompt_of(tokens: list[list[int]]) -> list[int]:
    """The numbers that a script's stretches stand for."""
    return [first + more for first, count in tokens for more in range(count)]


def main(form: str, page: str) -> None:
    """Run the script on a server of that format and page size."""
    asked = "import importlib.metadata as m; print(m.version('sglang'))"
    version = subprocess.check_output([PYTHON, "-c", asked], text=True).strip()
    port, replay_port = free_ports(8)[-2:]
    flags = ("--page-size", page, "--max-total-tokens", str(TOKENS))
    ears = zmq.Context().socket(zmq.SUB)
    ears.set(zmq.SUBSCRIBE, b"kv")
    ears.connect(f"tcp://{HOST}:{port}")
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder), "fcfs", *flags, *published(port, replay_port, form=form)) as server,
    ):
        empty(server, ears)
        lines = [line for step in script() for line in played(server, ears, step)]
    path = CAPTURES / f"sglang-{version}-{form}-page{page}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def empty(server: Server, ears: "zmq.Socket[bytes]") -> None:
    """Begin a capture with an empty cache, after all earlier messages were read."""
    server.forget()
    while not any(b"AllBlocksCleared" in batch for _, batch in heard(ears, 1)):
        pass


def played(
    server: Server, ears: "zmq.Socket[bytes]", step: dict[str, Any], least: int = 0
) -> list[dict[str, Any]]:
    """Return the messages of a step of the script, at least `least` of them."""
    if "flush" in step:
        server.forget()
    else:
        more = {name: value for name, value in step.items() if name != "tokens"}
        answer = server.complete(prompt_of(step["tokens"]), max_tokens=1, **more)
        step = {**step, "cached": answer.cached}
    return [
        step,
        *({"number": number, "batch": batch.hex()} for number, batch in heard(ears, least)),
    ]


def heard(ears: "zmq.Socket[bytes]", least: int) -> list[tuple[int, bytes]]:
    """The messages until none comes for a while, `least` or more: numbers and batches."""
    found: list[tuple[int, bytes]] = []
    while ears.poll(1000 * (QUIET_S if len(found) >= least else PATIENCE_S)):
        _, number, batch = ears.recv_multipart()
        found.append((int.from_bytes(number, "big"), batch))
    assert len(found) >= least, found
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
