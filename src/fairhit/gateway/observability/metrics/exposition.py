"""The metrics of requests, queues and gaps, in Prometheus's text format; docs/reference/metrics.md has all.

What has a line for each client is written here: with a thousand of them on eight engines the library
would hold up every request for a tenth of a second.
"""

from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from fairhit.core.service import UNITS_PER_TOKEN
from fairhit.dispatch import Dispatcher
from fairhit.gateway.observability.metrics.histogram import TIMES_US, Histogram
from fairhit.gateway.observability.metrics.recorder import Recorder
from fairhit.gateway.observability.page.snapshot import SnapshotTaker, Watches

# Policies with a number for each client that is a number of tokens.
_COUNTING = frozenset(("dlpm", "dlpm-predict", "drr", "vtc"))
_PER_S = 1_000_000  # times are kept in microseconds
# A client's histogram in one piece: a thousand, line by line, would hold up everybody for 50 ms.
_WAIT, _CLIENT = "fairhit_client_wait_seconds", "\0"
_WAIT_LINES = (
    "".join(
        f'{_WAIT}_bucket{{{_CLIENT},le="{le}"}} %d\n'
        for le in (*(f"{bound / _PER_S:g}" for bound in TIMES_US), "+Inf")
    )
    + f"{_WAIT}_count{{{_CLIENT}}} %d\n{_WAIT}_sum{{{_CLIENT}}} %s\n"
)


class Exposition:
    """Reads what was recorded when somebody asks."""

    def __init__(
        self, dispatcher: Dispatcher, recorder: Recorder, look: SnapshotTaker, watches: Watches
    ) -> None:
        self._dispatcher = dispatcher
        self._recorder = recorder
        self._look = look
        self._watches = watches

    def of_all(self) -> Iterator[Metric]:
        """By model, by engine, and of the gateway as a whole. O(models + workers)."""
        yield from self._requests()
        yield from self._lengths_and_times()
        yield from self._workers()
        yield from self._gaps()
        dispatcher = self._dispatcher
        yield GaugeMetricFamily(
            "fairhit_request_running", "Requests with the engines.",
            value=sum(len(worker.tickets) for worker in dispatcher.workers.values()),
        )  # fmt: skip
        yield GaugeMetricFamily(
            "fairhit_flow_control_queue_size", "Requests waiting in the gateway.",
            value=len(dispatcher.queueing),
        )  # fmt: skip

    def of_clients(self) -> Iterator[str]:
        """What has a line for each client. O(clients)."""
        dispatcher = self._dispatcher
        accounts = dict(dispatcher.ledger.accounts())
        labels = {name: label("client", name) for name in accounts}
        yield family(
            "client_service_tokens_total", "counter",
            "Service received: extend + 2 * output tokens of requests that have ended.",
            ((labels[name], one.service.system_view()) for name, one in accounts.items()),
        )  # fmt: skip
        waiting = {name: dispatcher.queueing.count(name) for name in accounts}
        yield family(
            "client_queue_size", "gauge", "Requests waiting in the gateway.",
            ((labels[name], number) for name, number in waiting.items()),
        )  # fmt: skip
        yield family(
            "client_cached_ratio", "gauge",
            "Share of prompt tokens that the engines had cached, since the gateway began.",
            (
                (labels[name], one.service.cached_len / one.service.input_len)
                for name, one in accounts.items() if one.service.input_len
            ),
        )  # fmt: skip
        yield family(
            "client_service_gap_tokens", "gauge",
            "Widest gap to another client that waits at the same engine; absent while there is none.",
            ((label("client", name), gap) for name, gap in self._look.of_client.items()),
        )  # fmt: skip
        yield self._deficits()
        yield self._waits()

    def _deficits(self) -> str:
        """Of those that wait: all others' may be anything, and nothing depends on it now."""
        queueing = self._dispatcher.queueing
        rows = []
        if queueing.scheduler in _COUNTING:
            for name, worker in self._dispatcher.workers.items():
                if worker.queue is not None:
                    credit, at = worker.queue.scheduler.policy.credit, label("worker", name)
                    for client in list(worker.queue.waiting.counts())[:1000]:
                        tokens = credit(client) / UNITS_PER_TOKEN
                        rows.append((f"{label('client', client)},{at}", tokens))
        return family(
            "client_deficit_tokens", "gauge",
            "What the scheduler's counter says a waiting client may still receive there: q of DLPM, "
            "-c of VTC.",
            rows,
        )  # fmt: skip

    def _waits(self) -> str:
        lines = [
            f"# HELP {_WAIT} From arrival until the request was sent to an engine.\n",
            f"# TYPE {_WAIT} histogram\n",
        ]
        for client, kept in self._recorder.clients().items():
            numbers = tuple(accumulate(kept.wait.buckets))
            told = _WAIT_LINES % (*numbers, numbers[-1], kept.wait.sum / _PER_S)
            lines.append(told.replace(_CLIENT, label("client", client)))
        return "".join(lines)

    def _requests(self) -> Iterator[Metric]:
        total = CounterMetricFamily(
            "fairhit_request", "Requests ended, by the status their callers got; 499: they left.",
            labels=["model_name", "code"],
        )  # fmt: skip
        errors = CounterMetricFamily(
            "fairhit_request_error", "Those of them with status 400 or more.",
            labels=["model_name", "error_code"],
        )  # fmt: skip
        for model, kept in self._recorder.models().items():
            for code, number in sorted(kept.codes.items()):
                total.add_metric([model or "", str(code)], number)
                if code >= 400:
                    errors.add_metric([model or "", str(code)], number)
        yield from (total, errors)

    def _lengths_and_times(self) -> Iterator[Metric]:
        models = self._recorder.models().items()
        for name, words, attribute, unit in (
            ("request_duration_seconds", "From arrival to the end.", "duration", _PER_S),
            ("request_ttft_seconds", "From arrival to a stream's first byte that is no greeting.",
             "ttft", _PER_S),
            ("request_streaming_tpot_seconds", "Of a stream, for each token but the first.",
             "tpot", _PER_S),
            ("request_input_tokens", "Prompt tokens.", "input", 1),
            ("request_cached_tokens", "Prompt tokens that the engine had cached.", "cached", 1),
            ("request_output_tokens", "Tokens emitted.", "output", 1),
        ):  # fmt: skip
            metric = HistogramMetricFamily(f"fairhit_{name}", words, labels=["model_name"])
            for model, kept in models:
                histogram: Histogram = getattr(kept, attribute)
                rows, _ = _cumulative(histogram, unit)
                metric.add_metric([model or ""], rows, sum_value=histogram.sum / unit)
            yield metric

    def _workers(self) -> Iterator[Metric]:
        named = ["worker"]
        kinds = {
            "in_flight_requests": "Requests sent to the engine and not finished.",
            "queue_size": "Requests waiting in the gateway for this engine alone.",
            "concurrency_limit": "Most requests in flight at the engine, as learnt or set.",
        }
        made = {
            kind: GaugeMetricFamily(f"fairhit_worker_{kind}", words, labels=named)
            for kind, words in kinds.items()
        }
        for name, _, worker in self._watches():
            made["in_flight_requests"].add_metric([name], len(worker.tickets))
            if worker.queue is not None:
                made["queue_size"].add_metric([name], len(worker.queue.waiting))
                made["concurrency_limit"].add_metric([name], worker.queue.window.size)
        yield from made.values()

    def _gaps(self) -> Iterator[Metric]:
        named = ["worker"]
        gap = GaugeMetricFamily(
            "fairhit_service_gap_tokens",
            "Widest gap of two clients that wait at this engine; absent while no two do.",
            labels=named,
        )
        limit = GaugeMetricFamily(
            "fairhit_service_gap_bound_tokens",
            "What the scheduler guarantees that gap to be at most, by what was seen so far.",
            labels=named,
        )
        for seen in self._look.gaps:
            gap.add_metric([seen.worker], seen.gap.tokens)
            if seen.bound is not None:
                limit.add_metric([seen.worker], seen.bound)
        yield from (gap, limit)
        yield CounterMetricFamily(
            "fairhit_service_gap_violations",
            "Looks, one a second and engine, that found a gap wider than its bound.",
            value=self._look.violations,
        )


def family(name: str, kind: str, words: str, rows: Iterable[tuple[str, float]]) -> str:
    """One metric's lines, each of labels and value."""
    name = f"fairhit_{name}"
    lines = [f"{name}{{{labels}}} {float(value)}\n" for labels, value in rows]
    return f"# HELP {name} {words}\n# TYPE {name} {kind}\n{''.join(lines)}"


def label(name: str, value: str) -> str:
    """Clients have printable names, so that these two are all there is to escape."""
    value = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}="{value}"'


def _cumulative(histogram: Histogram, unit: int = _PER_S) -> tuple[list[tuple[str, float]], int]:
    """The buckets as Prometheus has them, each with all below it; and how many there are in all."""
    rows, total = [], 0
    for upper, number in zip(histogram.bounds, histogram.buckets, strict=False):
        total += number
        rows.append((f"{upper / unit:g}" if unit > 1 else str(upper), float(total)))
    total += histogram.buckets[-1]
    rows.append(("+Inf", float(total)))
    return rows, total
