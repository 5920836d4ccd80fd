"""How much the engines have to do, by their own metrics, and which of them share fairly themselves.

A busy engine whose queue is kept at the gateway is asked a few times a second: how many requests run
in it and wait in it. What it does not say, or says late, stops nothing: the window then goes by first
bytes. With `--queue auto` every engine is also looked at now and then for the marks of our plug-in:
one that has it and is told the clients shares fairly itself.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import isnan
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
# vLLM and SGLang; several samples where an engine has several ranks or models.
_RUNNING = (b"vllm:num_requests_running", b"sglang:num_running_reqs")
_WAITING = (b"vllm:num_requests_waiting", b"sglang:num_queue_reqs")
# What follows the name in a sample of Prometheus's text format: labels, a value, a time.
_SAMPLE = re.compile(
    rb'(?:[ \t]*\{(?:[^"}\n]++|"(?:[^"\\\n]++|\\.)*+")*+\}[ \t]*|[ \t]+)'
    rb"([^ \t\r\n]+)(?:[ \t]+-?[0-9]+)?[ \t\r]*(?:\n|\Z)"
)
_VALUE = re.compile(rb"[+-]?(?:[0-9.]+(?:e[+-]?[0-9]+)?|inf|nan)", re.IGNORECASE)
# A line may begin with blanks; longer ones are no line of ours.
_MOST_BLANKS = 64
_MOST_REQUESTS = 1e9
# What only the plug-in counts: see `fairlead.engines.client_metrics`.
_PLUG_IN = (b"fairlead_refill_rounds", b"fairlead_truncated_passes")
# By `--identity-field`: how the names begin that only engines have that look for the client elsewhere.
_NOT_TOLD = {"vllm": b"sglang:", "sglang": b"vllm:"}


class Load(NamedTuple):
    """Requests in an engine, whoever sent them."""

    running: int
    waiting: int


def read_load(body: bytes) -> Load:
    """What an engine's metrics say. Raises ValueError with the reason where they do not say both. O(body).

    They may be 100 KB, a few times a second: an expression that looks at each line takes a millisecond.
    """
    running, waiting = _sum(body, _RUNNING), _sum(body, _WAITING)
    return Load(running=int(running), waiting=int(waiting))


def _sum(body: bytes, names: Sequence[bytes]) -> float:
    """The values of the first of these metrics that is there, added up. Raises ValueError."""
    for name in names:
        numbers = [number for end in _samples(body, name) for number in _value(body, end, name)]
        if numbers:
            return sum(numbers)
    raise ValueError(f"no {b' or '.join(names).decode()} among its metrics")


def _samples(body: bytes, name: bytes) -> Iterator[int]:
    """Where `name` ends on each line that begins with it."""
    at = body.find(name)
    while at >= 0:
        begin = max(0, at - _MOST_BLANKS)
        line = body.rfind(b"\n", begin, at) + 1 or begin
        end = at + len(name)
        if (line == 0 or body[line - 1 : line] == b"\n") and not body[line:at].strip(b" \t"):
            yield end
        at = body.find(name, end)


def _value(body: bytes, end: int, name: bytes) -> list[float]:
    """The value of the sample whose name ends there; none if it is no number, or of a longer name."""
    if body[end : end + 1] not in b" \t{":
        return []
    sample = _SAMPLE.match(body, end)
    if sample is None or not _VALUE.fullmatch(sample[1]):
        raise ValueError(f"a sample of {name.decode()} that is no sample")
    value = float(sample[1])
    if isnan(value):
        return []
    if not 0 <= value <= _MOST_REQUESTS:
        raise ValueError(f"{name.decode()} is {value:g}")
    return [value]


def has_plug_in(body: bytes) -> bool:
    """Whether these are the metrics of an engine that runs our scheduler."""
    return any(True for name in _PLUG_IN for _ in _samples(body, name))


def is_told(body: bytes, identity_field: str) -> bool:
    """Whether the engine whose metrics these are is told the clients, by what `--identity-field` says."""
    if identity_field not in _NOT_TOLD:
        return identity_field == "both"
    return not any(True for _ in _samples(body, _NOT_TOLD[identity_field]))


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
        self._unread: set[WorkerId] = set()  # of whom it was said that their load cannot be read
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
            self._forget(name)

    def _forget(self, name: WorkerId) -> None:
        """The next life of an engine may be another build."""
        self._due.pop(name, None)
        self._untold.discard(name)
        self._unread.discard(name)

    def _is_due(self, name: WorkerId, worker: Worker, now: float) -> bool:
        if not worker.up:
            self._forget(name)
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
        body, problem = b"", ""
        try:
            status, answer = await Probe().get(
                self._engine(name), b"/metrics", timeout_s=_PATIENCE_S, keeps=True
            )
            if status == 200:
                body = answer
            else:
                problem = f"/metrics answers {status}"
        except (OSError, ValueError, KeyError, EngineFailed):  # its health is others' business
            problem = "/metrics does not answer"
        now = self._loop.time()
        self._due[name] = now + max(0.0, (now - begun) / _SHARE - self._interval_s)
        self._conclude(name, body, problem)

    def _conclude(self, name: WorkerId, body: bytes, problem: str = "") -> None:
        worker = self._dispatcher.workers.get(name)
        if worker is None or not worker.up:
            return
        try:
            load = None if problem else read_load(body)
        except ValueError as error:
            load, problem = None, str(error)
        if load is None:
            self._miss(name, worker, problem)
        else:
            self._dispatcher.observed(name, running=load.running, waiting=load.waiting)
        if self._detects and body and (worker.queue is None) != self._is_fair(name, body):
            fair = worker.queue is not None
            _log.info("engine %s %s", name, "is fair itself" if fair else "is not fair itself")
            self._dispatcher.set_queueing(name, queues=not fair)

    def _miss(self, name: WorkerId, worker: Worker, problem: str) -> None:
        """Its load is not known; says so once, where requests wait here for it."""
        self._dispatcher.unobserved(name, problem)
        if worker.queue is not None and name not in self._unread:
            self._unread.add(name)
            _log.warning(
                "engine %s: its load cannot be read, %s: how much it is sent goes by first bytes,"
                " or --max-engine-requests",
                name,
                problem,
            )

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
