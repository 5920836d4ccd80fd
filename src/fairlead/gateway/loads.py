"""How much the engines have to do, by their own metrics, and which of them share fairly themselves.

A busy engine whose queue is kept at the gateway is asked a few times a second: how many requests run
in it and wait in it. What it does not say, or says late, stops nothing: the window then goes by first
bytes. With `--queue auto` every engine is also looked at now and then for the marks of our plug-in:
one that has it and is told the clients shares fairly itself.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from fairlead.core.request import WorkerId
from fairlead.dispatch import Dispatcher, Worker
from fairlead.errors import EngineFailed
from fairlead.gateway.guarded import guarded
from fairlead.gateway.probe import Probe
from fairlead.gateway.upstream import Engine

_log = logging.getLogger(__name__)

# Between two looks at an engine that is idle, or whose metrics say nothing of its load.
_RARELY_S = 5.0
_PATIENCE_S = 1.0
# At most this part of the time is spent on asking one engine, whose metrics may be long.
_SHARE = 0.05
# vLLM and SGLang; several lines where an engine has several ranks or models.
_RUNNING = (b"\nvllm:num_requests_running", b"\nsglang:num_running_reqs")
_WAITING = (b"\nvllm:num_requests_waiting", b"\nsglang:num_queue_reqs")
# What follows the name, up to the end of the line.
_NUMBER = re.compile(rb"(?:\{[^}\n]*\})? ([0-9.eE+]+)[ \t\r]*(?:\n|\Z)")
# What only the plug-in counts: see `fairlead.engines.client_metrics`.
_PLUG_IN = (b"\nfairlead_refill_rounds", b"\nfairlead_cut_looks")
# By `--identity-field`: what only engines say that look for the client elsewhere. All say something.
_NOT_TOLD = {"vllm": b"\nsglang:", "sglang": b"\nvllm:", "none": b"", "both": None}


class Load(NamedTuple):
    """Requests in an engine, whoever sent them."""

    running: int
    waiting: int


def read_load(body: bytes) -> Load | None:
    """What an engine's metrics, from their second line on, say; None unless they say both. O(body).

    They may be 100 KB, a few times a second: an expression that looks at each line takes a millisecond.
    """
    try:
        running, waiting = _numbers(body, _RUNNING), _numbers(body, _WAITING)
    except ValueError:
        return None
    if not running or not waiting or max(*running, *waiting) > 1e9:
        return None
    return Load(running=int(sum(running)), waiting=int(sum(waiting)))


def _numbers(body: bytes, names: Sequence[bytes]) -> list[float]:
    """The values of the lines with the first of these names that is there. Raises ValueError."""
    numbers: list[float] = []
    for name in names:
        at = -1 if numbers else body.find(name)
        while at >= 0:
            at += len(name)
            if found := _NUMBER.match(body, at):
                numbers.append(float(found[1]))
            at = body.find(name, at)
    return numbers


def has_plug_in(body: bytes) -> bool:
    """Whether these are the metrics of an engine that runs our scheduler."""
    return any(name in body for name in _PLUG_IN)


def is_told(body: bytes, identity_field: str) -> bool:
    """Whether the engine whose metrics these are is told the clients, by what `--identity-field` says."""
    mark = _NOT_TOLD[identity_field]
    return mark is None or mark not in body


class Loads:
    """Asks, from `start` to `close`."""

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        engine: Callable[[WorkerId], Engine],
        detects: bool,
        identity_field: str,
        interval_s: float,
    ) -> None:
        self._dispatcher = dispatcher
        self._engine = engine
        self._detects = detects
        self._identity_field = identity_field
        self._untold: set[WorkerId] = set()  # of whom that was said
        self._interval_s = interval_s
        self._due: dict[WorkerId, float] = {}
        self._asking: dict[WorkerId, asyncio.Task[None]] = {}
        self._ticker: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._ticker = self._loop.create_task(self._tick())

    def close(self) -> None:
        """Ask no more."""
        for task in (self._ticker, *self._asking.values()):
            if task is not None:
                task.cancel()

    async def _tick(self) -> None:
        while True:
            guarded(self._look_round)
            await asyncio.sleep(self._interval_s)

    def _look_round(self) -> None:
        """Ask those whose turn it is."""
        now = self._loop.time()
        for name, worker in list(self._dispatcher.workers.items()):
            if self._is_due(name, worker, now):
                task = self._loop.create_task(self._ask(name, begun=now))
                self._asking[name] = task
                task.add_done_callback(partial(self._asked, name))
        for name in [name for name in self._due if name not in self._dispatcher.workers]:
            del self._due[name]
            self._untold.discard(name)

    def _is_due(self, name: WorkerId, worker: Worker, now: float) -> bool:
        if not worker.up:
            self._due.pop(name, None)  # the next life may be another build
            self._untold.discard(name)
            return False
        if name in self._asking or (worker.queue is None and not self._detects):
            return False
        if name not in self._due:  # so that the first requests meet a window that knows
            return True
        busy = worker.queue is not None and worker.queue.window.in_flight > 0
        if not (busy or self._detects):
            return False
        if busy and worker.queue is not None and worker.queue.window.is_observed:
            return now >= self._due[name]
        # Nothing depends on it now, or its metrics had nothing to say.
        return now >= self._due[name] + _RARELY_S

    def _asked(self, name: WorkerId, _: asyncio.Task[None]) -> None:
        del self._asking[name]

    async def _ask(self, name: WorkerId, *, begun: float) -> None:
        body = b""
        try:
            status, answer = await Probe().get(
                self._engine(name), b"/metrics", timeout_s=_PATIENCE_S, keeps=True
            )
            body = answer if status == 200 else b""
        except (OSError, ValueError, KeyError, EngineFailed):
            pass  # its health is others' business
        now = self._loop.time()
        self._due[name] = now + max(0.0, (now - begun) / _SHARE - self._interval_s)
        self._conclude(name, body)

    def _conclude(self, name: WorkerId, body: bytes) -> None:
        worker = self._dispatcher.workers.get(name)
        if worker is None or not worker.up:
            return
        load = read_load(body)
        if load is None:
            self._dispatcher.unobserved(name)
        else:
            self._dispatcher.observed(name, running=load.running, waiting=load.waiting)
        if self._detects and body and (worker.queue is None) != self._is_fair(name, body):
            fair = worker.queue is not None
            _log.info("engine %s %s", name, "is fair itself" if fair else "is not fair itself")
            self._dispatcher.set_queueing(name, queues=not fair)

    def _is_fair(self, name: WorkerId, body: bytes) -> bool:
        """Whether it has our plug-in and hears who asks; says once where it does not.

        Where all engines together have a limit, what waits for it waits here, and is ordered here.
        """
        if not has_plug_in(body) or self._dispatcher.queueing.max_sent is not None:
            return False
        if is_told(body, self._identity_field):
            return True
        if name not in self._untold:
            self._untold.add(name)
            _log.warning(
                "engine %s has the plug-in, but --identity-field %s does not tell it the clients:"
                " requests wait at the gateway",
                name,
                self._identity_field,
            )
        return False
