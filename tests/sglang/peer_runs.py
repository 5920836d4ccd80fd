"""Scripts of requests and orders, run by a real SGLang Scheduler under several policies: what comes of them.

    .venvs/sglang/bin/python -m tests.sglang.peer_runs FOLDER [SGLang's flags]

One process makes one Scheduler and runs all scripts of `FOLDER/scripts.json` one after the other, each
into an empty cache; what came of each is written to `FOLDER/found.json`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fairhit.local.demo_model import demo_model
from tests.sglang.server import CPU_FLAGS, ENVIRONMENT
from tests.sglang.stepped import RUNAWAY, Asked, made, request

TIMEOUT_S = 600.0


class Order(NamedTuple):
    """Return the tokenizer's messages to the Scheduler at `step`: see ORDERS."""

    step: int
    what: str
    about: str = ""


class Ended(NamedTuple):
    """The end of a request, with its reason."""

    reason: str
    said: str
    cached: int
    outputs: list[int]


class Found(NamedTuple):
    """The outcome of a script: each batch, as `prefill` or not with its requests, and each end."""

    batches: list[tuple[bool, list[str]]]
    ends: dict[str, Ended]
    flushed: list[bool]
    steps: dict[str, int]  # at which each ended


Script = Sequence[Asked | Order]


def run(folder: Path, policy: str, scripts: Mapping[str, Script], *flags: str) -> dict[str, Found]:
    """Return the outcome of each script under a policy."""
    folder.mkdir(parents=True)
    (folder / "scripts.json").write_text(json.dumps(scripts))
    command = [sys.executable, "-m", "tests.sglang.peer_runs", str(folder)]
    with (folder / "log").open("wb") as log:
        code = subprocess.run(
            [*command, "--schedule-policy", policy, *flags],
            env={**os.environ, **ENVIRONMENT},
            stdout=log,
            stderr=log,
            timeout=TIMEOUT_S,
            check=False,
        ).returncode
    assert code == 0, (folder / "log").read_text(errors="replace")[-4000:]
    found = json.loads((folder / "found.json").read_text())
    return {
        name: Found(
            [(is_prefill, names) for is_prefill, names in batches],
            {rid: Ended(*end) for rid, end in ends.items()},
            *rest,
        )
        for name, (batches, ends, *rest) in found.items()
    }


# -- inside the process that has the Scheduler ----------------------------------------------------


def main(folder: Path, flags: list[str]) -> None:
    """Make the Scheduler and run the scripts."""
    scheduler = made([*CPU_FLAGS, "--model-path", str(demo_model()), *flags])
    scripts = json.loads((folder / "scripts.json").read_text())
    runner = Runner(scheduler)
    found = {
        name: runner.run([_item(*item) for item in script]) for name, script in scripts.items()
    }
    (folder / "found.json").write_text(json.dumps(found))


def _item(step: int, name: str, *rest: Any) -> Asked | Order:
    return Order(step, name, *rest) if name in ORDERS else Asked(step, name, *rest)


def _orders() -> dict[str, Any]:
    from sglang.srt.managers import io_struct as io

    return {
        "abort": lambda about: io.AbortReq(rid=about),
        "abort all": lambda _: io.AbortReq(abort_all=True),
        "pause": lambda about: io.PauseGenerationReqInput(mode=about),
        "continue": lambda _: io.ContinueGenerationReqInput(torch_empty_cache=False),
        "flush": lambda _: io.FlushCacheReqInput(),
        "open": lambda about: io.OpenSessionReqInput(
            capacity_of_str_len=1000, session_id=about, streaming=True
        ),
        "close": lambda about: io.CloseSessionReqInput(session_id=about),
    }


ORDERS = ("abort", "abort all", "pause", "continue", "flush", "open", "close")


class Runner:
    """A Scheduler whose requests come from a script, and whose batches and ends are written down."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler, self._orders = scheduler, _orders()
        self._found, self._step = Found([], {}, [], {}), 0
        for name in (
            "run_batch",
            "process_batch_result",
            "send_abort_output",
            "send_control_output",
        ):
            setattr(scheduler, name, self._heard(name, getattr(scheduler, name)))

    def run(self, script: list[Asked | Order]) -> Found:
        """Until nothing is left to do; nothing is left behind."""
        scheduler = self._scheduler
        self._found = found = Found([], {}, [], {})
        self._feed(sorted(script, key=lambda item: item.step))
        scheduler.gracefully_exit = False
        scheduler.run_event_loop()
        assert scheduler.flush_cache(), "memory is not free though nobody runs"
        if (line := getattr(scheduler, "_queue_adapter", None)) is not None:
            assert line.live == 0, line.live
        return found

    def _feed(self, left: list[Asked | Order]) -> None:
        scheduler, steps = self._scheduler, iter(range(RUNAWAY))

        def receive(*_: Any, **__: Any) -> list[Any]:
            self._step = step = next(steps)
            come = []
            while left and left[0].step <= step:
                come.append(self._message(left.pop(0)))
            is_busy = scheduler.last_batch or not scheduler.running_batch.is_empty()
            if not (come or left or scheduler.waiting_queue or scheduler.chunked_req or is_busy):
                scheduler.gracefully_exit = True
            return come

        type(scheduler.request_receiver).recv_requests = receive

    def _message(self, item: Asked | Order) -> Any:
        if isinstance(item, Order):
            return self._orders[item.what](item.about)
        message = request(item, None)
        if item.adapter:  # here it names a session
            from sglang.srt.managers.io_struct import SessionParams

            message.session_params = SessionParams(id=item.adapter)
        return message

    def _heard(self, name: str, stock: Any) -> Any:
        def heard(*args: Any, **kwargs: Any) -> Any:
            if name == "run_batch":
                batch = args[0]
                names = [req.rid for req in batch.reqs]
                self._found.batches.append((batch.forward_mode.is_extend(), names))
            result = stock(*args, **kwargs)
            if name == "process_batch_result":
                for req in args[0].reqs:
                    if req.finished():
                        self._end(req, req.finished_reason.to_json())
            elif name == "send_abort_output":
                self._end(args[1], args[0].finished_reason or {})
            elif name == "send_control_output" and type(args[0]).__name__ == "FlushCacheReqOutput":
                self._found.flushed.append(args[0].success)
            return result

        return heard

    def _end(self, req: Any, reason: Mapping[str, Any]) -> None:
        said = str(reason.get("message") or "")
        end = Ended(reason.get("type", "abort"), said, req.cached_tokens, [*req.output_ids])
        self._found.ends.setdefault(req.rid, end)
        self._found.steps.setdefault(req.rid, self._step)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
