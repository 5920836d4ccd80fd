"""Load monitor: reads from the engines' own metrics how many requests run and wait in each engine.

A busy engine is asked several times a second while requests queue at the gateway. If its metrics lack the
load, or come late, the gateway infers from first response bytes which requests wait. What each client was
charged and consumed in an engine with our plug-in is read for the live page, with `--queue engine`, too.
"""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf, isnan, prod
from typing import NamedTuple

from fairhit.core.engine_time import Prices
from fairhit.core.request import ClientId, WorkerId
from fairhit.dispatch import Dispatcher, Engine
from fairhit.dispatch.accounting.consumption import Consumed
from fairhit.dispatch.accounting.engine_prices import PARTS
from fairhit.errors import EngineFailed
from fairhit.gateway.http.engine_connection import EngineConnections
from fairhit.gateway.observability.log_exceptions import log_exceptions
from fairhit.gateway.pool import health_probe as probe
from fairhit.gateway.settings import GatewaySettings

_log = logging.getLogger(__name__)

# Between two requests to an engine that is idle, or whose metrics lack its load; and the longest pause after
# a slow answer: a busy engine gives one now and then.
_IDLE_INTERVAL_S = 5.0
_TIMEOUT_S = 1.0
# Largest share of the time that requests to one engine may take: metrics may be long.
_SHARE = 0.05
# Names in vLLM and SGLang; an engine with several ranks or models has several samples.
_RUNNING = (b"vllm:num_requests_running", b"sglang:num_running_reqs")
_WAITING = (b"vllm:num_requests_waiting", b"sglang:num_queue_reqs")
# KV memory: the share in use and the size of vLLM's; tokens in use and altogether of SGLang's.
_USAGE, _BLOCKS = b"vllm:kv_cache_usage_perc", b"vllm:cache_config_info"
_USED, _CAPACITY = b"sglang:num_used_tokens", b"sglang:max_total_num_tokens"
_LABELS = tuple(
    re.compile(rb'[{,]%b="([0-9]{1,12})"' % name) for name in (b"num_gpu_blocks", b"block_size")
)
# The rest of a sample in Prometheus's text format, after the name: labels, value, time.
_SAMPLE = re.compile(
    rb'(?:[ \t]*\{(?:[^"}\n]++|"(?:[^"\\\n]++|\\.)*+")*+\}[ \t]*|[ \t]+)'
    rb"([^ \t\r\n]+)(?:[ \t]+-?[0-9]+)?[ \t\r]*(?:\n|\Z)"
)
_VALUE = re.compile(rb"[+-]?(?:[0-9.]+(?:e[+-]?[0-9]+)?|inf|nan)", re.IGNORECASE)
# A line may be indented by so much.
_MAX_BLANKS = 64
_MAX_REQUESTS = 1e9
# Prices of its cost, in computed prompt tokens, by part.
_PRICE = b"fairhit_price_tokens"
# Counters of each client's charge and engine time, and the label that names the client.
_CONSUMED = (b"fairhit_charged_tokens_total", b"fairhit_engine_seconds_total")
_CLIENT = re.compile(rb'client="([^"\\\n]*)"')
# Between two readings of these: an engine may export thousands of them.
_CONSUMED_EVERY_S = 5.0


class EngineLoad(NamedTuple):
    """Requests in an engine, of all its users, and the tokens of KV memory that those that run leave."""

    running: int
    waiting: int
    free_len: int | None = None  # None: not among its metrics


def read_load(body: bytes) -> EngineLoad:
    """The load in an engine's metrics. Raises ValueError with the reason if a part is missing. O(body).

    Metrics may be 100 KB, several times a second: a regular expression over all lines would take 1 ms.
    """
    running, waiting = _sum(body, _RUNNING), _sum(body, _WAITING)
    return EngineLoad(running=int(running), waiting=int(waiting), free_len=_free_len(body))


def _free_len(body: bytes) -> int | None:
    """Tokens of KV memory that running requests leave, of all ranks; None if it is not reported. O(body).

    Raises ValueError for a sample that is none.
    """
    if used := _all(body, _USED):
        capacity = sum(_all(body, _CAPACITY))
        return max(0, int(capacity - sum(used))) if capacity else None
    usage, capacities = _all(body, _USAGE), list(_capacities(body))
    if not usage or len(usage) != len(capacities):
        return None
    shares = (max(0.0, 1 - share) for share in usage)
    return int(sum(share * size for share, size in zip(shares, capacities, strict=True)))


def _capacities(body: bytes) -> Iterator[int]:
    """Tokens of KV memory of each rank of a vLLM engine."""
    for end in _samples(body, _BLOCKS):
        sample = _SAMPLE.match(body, end)
        if sample is not None:
            found = [label.search(body, end, sample.start(1)) for label in _LABELS]
            if all(found):
                yield prod(int(each[1]) for each in found if each)


def _all(body: bytes, name: bytes) -> list[float]:
    """Values of all samples of a metric. Raises ValueError."""
    return [number for end in _samples(body, name) for number in _value(body, end, name)]


def _sum(body: bytes, names: Sequence[bytes]) -> float:
    """Sum of all samples of the first metric of `names` that is present. Raises ValueError."""
    for name in names:
        if numbers := _all(body, name):
            return sum(numbers)
    raise ValueError(f"no {b' or '.join(names).decode()} among its metrics")


def _samples(body: bytes, name: bytes) -> Iterator[int]:
    """Offset behind `name` on each line that begins with it."""
    at = body.find(name)
    while at >= 0:
        begin = max(0, at - _MAX_BLANKS)
        line = body.rfind(b"\n", begin, at) + 1 or begin
        end = at + len(name)
        if (line == 0 or body[line - 1 : line] == b"\n") and not body[line:at].strip(b" \t"):
            yield end
        at = body.find(name, end)


def _value(body: bytes, end: int, name: bytes) -> list[float]:
    """Value of the sample whose name ends at `end`; empty for NaN and for a longer name."""
    if body[end : end + 1] not in b" \t{":
        return []
    sample = _SAMPLE.match(body, end)
    if sample is None or not _VALUE.fullmatch(sample[1]):
        raise ValueError(f"a sample of {name.decode()} that is no sample")
    value = float(sample[1])
    if isnan(value):
        return []
    if not 0 <= value <= _MAX_REQUESTS:
        raise ValueError(f"{name.decode()} is {value:g}")
    return [value]


def read_prices(body: bytes) -> Prices | None:
    """The prices in force in an engine that runs the plug-in: their mean over its ranks. O(body).

    None if its metrics have none: it runs no plug-in, or under a cost without such prices. Raises ValueError
    if one of the three is missing, negative or no number.
    """
    found: dict[str, list[float]] = {part: [] for part in PARTS}
    for end in _samples(body, _PRICE):
        sample = _SAMPLE.match(body, end)
        labels = b"" if sample is None else body[end : sample.start(1)]
        for part in PARTS:
            if b'part="%b"' % part.encode() in labels:
                found[part] += _value(body, end, _PRICE)
    if not any(found.values()):
        return None
    if missing := [part for part in PARTS if not found[part]]:
        raise ValueError(f"no {_PRICE.decode()} of {' or '.join(missing)} among its metrics")
    output, context, attention = (sum(found[part]) / len(found[part]) for part in PARTS)
    return output, context, attention


def read_consumption(body: bytes) -> dict[ClientId, Consumed]:
    """Charge and engine time of each client in an engine's metrics; empty without the plug-in. O(body).

    Raises ValueError if a sample is no number.
    """
    charges, seconds = (_by_client(body, name) for name in _CONSUMED)
    return {
        client: Consumed(charges.get(client, 0.0), seconds.get(client, 0.0))
        for client in {**charges, **seconds}
    }


def _by_client(body: bytes, name: bytes) -> dict[ClientId, float]:
    """Sums of the samples of a counter by their label `client`. Raises ValueError."""
    found: dict[ClientId, float] = {}
    for end in _samples(body, name):
        sample = _SAMPLE.match(body, end)
        client = None if sample is None else _CLIENT.search(body, end, sample.start(1))
        if sample is None or client is None:
            continue
        value = float(sample[1])
        if not 0 <= value < inf:
            raise ValueError(f"{name.decode()} is {value:g}")
        # The plug-in's names have no character that a label escapes.
        label = client[1].decode("utf-8", "replace")
        found[label] = found.get(label, 0.0) + value
    return found


@dataclass(slots=True)
class _Life:
    """State of an engine while it is up: after a restart it may be another build."""

    due_s: float | None = None  # None: its load was not asked for yet
    asking: asyncio.Task[None] | None = None
    consumed_s: float = -inf  # when its clients' consumption was read last
    warned: set[str] = field(default_factory=set)  # subjects that the log has named


class LoadMonitor:
    """Asks the engines for their metrics, from `start` to `close`."""

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        engine: Callable[[WorkerId], EngineConnections],
        settings: GatewaySettings,
    ) -> None:
        self._dispatcher = dispatcher
        self._engine = engine
        # All requests wait in the engines: only what their clients consume is read, for the live page.
        self._only_shows = settings.queue == "engine"
        self._interval_s = settings.load_interval_secs
        self._lives: dict[WorkerId, _Life] = {}
        self._ticker: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._ticker = self._loop.create_task(self._tick())

    def close(self) -> None:
        """Cancel all requests and send no more."""
        for task in (self._ticker, *(life.asking for life in self._lives.values())):
            if task is not None:
                task.cancel()

    async def _tick(self) -> None:
        while True:
            log_exceptions(self._ask_due)
            await asyncio.sleep(self._interval_s)

    def _ask_due(self) -> None:
        """Send a request to each engine that is due, and drop the state of those that are down."""
        now, engines = self._loop.time(), self._dispatcher.engines
        for name, life in list(self._lives.items()):
            if name not in engines or not engines[name].up:
                if life.asking is not None:
                    life.asking.cancel()
                del self._lives[name]
                self._dispatcher.queue.prices.report(name, None)
                self._dispatcher.consumption.forget(name)
        for name, worker in engines.items():
            if worker.up:
                life = self._lives.setdefault(name, _Life())
                if self._is_due(life, worker, now):
                    life.asking = self._loop.create_task(self._ask(name, life, begun=now))

    def _is_due(self, life: _Life, worker: Engine, now: float) -> bool:
        if life.asking is not None and not life.asking.done():
            return False
        if life.due_s is None:  # once at the start, so that the first requests meet a known load
            return True
        limit = worker.limit
        if limit is not None and limit.in_flight > 0 and limit.is_observed:
            return now >= life.due_s
        # The load is not used now, or could not be read the last time.
        return now >= life.due_s + _IDLE_INTERVAL_S

    async def _ask(self, name: WorkerId, life: _Life, *, begun: float) -> None:
        body, problem = b"", ""
        try:
            # Asked seldom, a connection would be closed meanwhile, and a request sent over it twice.
            reuses = not self._only_shows
            status, answer = await probe.get(
                self._engine(name), b"/metrics", timeout_s=_TIMEOUT_S, reuses=reuses
            )
            if status == 200:
                body = answer
            else:
                problem = f"/metrics answers {status}"
        except (OSError, ValueError, KeyError, EngineFailed):  # health checks judge the engine
            problem = "/metrics does not answer"
        now = self._loop.time()
        pause_s = max(0.0, (now - begun) / _SHARE - self._interval_s)
        life.due_s = now + min(pause_s, _IDLE_INTERVAL_S)
        self._apply(name, body, problem)

    def _apply(self, name: WorkerId, body: bytes, problem: str = "") -> None:
        """Set the engine's load and queueing in the dispatcher by its metrics."""
        worker = self._dispatcher.engines.get(name)
        if worker is None or not worker.up:
            return
        if body:
            self._apply_consumption(name, body)
        if self._only_shows:
            return
        try:
            load = None if problem else read_load(body)
        except ValueError as error:
            load, problem = None, str(error)
        if load is None:
            self._set_unknown(name, worker, problem)
        else:
            self._dispatcher.observed(
                name, running=load.running, waiting=load.waiting, free_len=load.free_len
            )
        if body:
            self._apply_prices(name, body)

    def _apply_prices(self, name: WorkerId, body: bytes) -> None:
        """Pass the prices in an engine's metrics to the queue; log where its cost then comes from."""
        prices = self._dispatcher.queue.prices
        try:
            found = read_prices(body)
        except ValueError as error:
            found = None
            self._warn_once(name, "prices", ": its prices are not used, %s", error)
        if prices.report(name, found, time.monotonic()) and self._dispatcher.queue.follows_prices:
            _log.info("cost of the queue: %s", prices.words())

    def _apply_consumption(self, name: WorkerId, body: bytes) -> None:
        """Pass what each client was charged and consumed to the dispatcher, every few seconds."""
        life, now_s = self._lives.setdefault(name, _Life()), time.monotonic()
        if now_s < life.consumed_s + _CONSUMED_EVERY_S:
            return
        life.consumed_s = now_s
        try:
            self._dispatcher.consumption.report(name, read_consumption(body), now_s)
        except ValueError as error:
            self._warn_once(
                name, "consumption", ": its clients' engine time is not shown, %s", error
            )

    def _set_unknown(self, name: WorkerId, worker: Engine, problem: str) -> None:
        """Set an engine's load to unknown, and log it once if requests queue at the gateway for it."""
        self._dispatcher.unobserved(name, problem)
        if worker.limit is not None:
            self._warn_once(
                name,
                "load",
                ": its load cannot be read, %s: it is inferred from first response bytes;"
                " --max-engine-requests sets the concurrency limit instead",
                problem,
            )

    def _warn_once(self, name: WorkerId, subject: str, text: str, *values: object) -> None:
        """Log `text` about the engine `name`, once for `subject` while it is up."""
        warned = self._lives.setdefault(name, _Life()).warned
        if subject not in warned:
            warned.add(subject)
            _log.warning("engine %s" + text, name, *values)
