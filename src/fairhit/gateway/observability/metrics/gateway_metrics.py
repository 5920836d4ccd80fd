"""The gateway's metrics in Prometheus's text format, made on demand; docs/reference/metrics.md lists all.

Families with a sample per client are written as text here. `prometheus_client` makes six times as many
calls for them: with 1,000 clients on eight engines a scrape would delay every request by 100 ms.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, islice

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from fairhit.core.costs import ContextCost
from fairhit.core.service import UNITS_PER_TOKEN, TokenCost
from fairhit.dispatch import Dispatcher
from fairhit.gateway.http.accept.connections import Connections
from fairhit.gateway.http.client_connection import ClientConnection
from fairhit.gateway.http.engine_connection import Fault
from fairhit.gateway.observability.metrics.histogram import TIMES_US, Histogram
from fairhit.gateway.observability.metrics.recorder import Recorder
from fairhit.gateway.observability.page.snapshot import SnapshotTaker, Watches
from fairhit.gateway.pool.circuit_breaker import Phase
from fairhit.gateway.pool.retry import Retries
from fairhit.routers.d2lpm import D2LPM
from fairhit.routers.in_flight_load import load_of

# Policies with a counter in tokens for each client.
_COUNTING = frozenset(("dlpm", "dlpm-predict", "drr", "fair", "vtc"))
_PER_S = 1_000_000  # times are kept in microseconds
# A client's histogram is formatted at once: line by line, 1,000 clients would delay requests by 50 ms.
_WAIT, _CLIENT = "fairhit_client_wait_seconds", "\0"
_WAIT_LINES = (
    "".join(
        f'{_WAIT}_bucket{{{_CLIENT},le="{le}"}} %d\n'
        for le in (*(f"{bound / _PER_S:g}" for bound in TIMES_US), "+Inf")
    )
    + f"{_WAIT}_count{{{_CLIENT}}} %d\n{_WAIT}_sum{{{_CLIENT}}} %s\n"
)
_WORKER = ["worker"]


class GatewayMetrics(Collector):
    """Collects the metrics of the gateway from counters that the dispatcher and others keep anyway.

    The ledger limits the number of client labels, the recorder that of model labels.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        recorder: Recorder,
        snapshots: SnapshotTaker,
        watches: Watches,
        *,
        retries: Retries | None = None,
    ) -> None:
        self._dispatcher = dispatcher
        self._recorder = recorder
        self._snapshots = snapshots
        self._watches = watches
        self._retries = retries
        self._responses: dict[int, int] = {}
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def add(self, collector: Collector) -> None:
        """Expose the metrics of `collector`, too."""
        self._registry.register(collector)

    def count(self, status: int) -> None:
        """Count a response that begins with `status`."""
        self._responses[status] = self._responses.get(status, 0) + 1

    def exposition(self) -> bytes:
        """Metrics as text. O(clients * engines)."""
        return generate_latest(self._registry) + "".join(self._by_client()).encode()

    def collect(self) -> Iterator[Metric]:
        """Metrics by model, by engine and of the whole gateway. O(models + engines)."""
        yield from self._requests()
        yield from self._lengths_and_times()
        yield from self._workers()
        yield from self._prices()
        yield from self._circuits()
        yield from self._gaps()

    # -- the gateway and its models

    def _requests(self) -> Iterator[Metric]:
        total = CounterMetricFamily(
            "fairhit_request", "Finished requests, by status sent to the client; 499: it disconnected.",
            labels=["model_name", "code"],
        )  # fmt: skip
        errors = CounterMetricFamily(
            "fairhit_request_error", "Finished requests with status 400 or more.",
            labels=["model_name", "error_code"],
        )  # fmt: skip
        for model, kept in self._recorder.models.items():
            for code, number in sorted(kept.codes.items()):
                total.add_metric([model or "", str(code)], number)
                if code >= 400:
                    errors.add_metric([model or "", str(code)], number)
        responses = CounterMetricFamily(
            "fairhit_responses", "Responses to clients, by HTTP status.", labels=["code"]
        )
        for status, number in sorted(self._responses.items()):
            responses.add_metric([str(status)], number)
        yield from (total, errors, responses)
        yield CounterMetricFamily(
            "fairhit_retries", "Requests sent to another engine.", value=self._dispatcher.retries
        )
        yield CounterMetricFamily(
            "fairhit_holds", "Waiting requests that were held for the engine with their prompt cached.",
            value=self._dispatcher.queue.holds,
        )  # fmt: skip
        if self._retries is not None:
            yield CounterMetricFamily(
                "fairhit_retries_refused",
                "Retries that the retry budget did not allow.",
                value=self._retries.refused,
            )
        yield GaugeMetricFamily(
            "fairhit_request_running", "Requests at the engines.",
            value=sum(len(worker.tickets) for worker in self._dispatcher.engines.values()),
        )  # fmt: skip
        yield GaugeMetricFamily(
            "fairhit_flow_control_queue_size", "Requests waiting in the gateway.",
            value=len(self._dispatcher.queue),
        )  # fmt: skip

    def _lengths_and_times(self) -> Iterator[Metric]:
        models = self._recorder.models.items()
        for name, words, attribute, unit in (
            ("request_duration_seconds", "From arrival to the end.", "duration", _PER_S),
            ("request_ttft_seconds",
             "From arrival to a stream's first byte, preamble events not counted.", "ttft", _PER_S),
            ("request_streaming_tpot_seconds", "Of a stream, per output token after the first.",
             "tpot", _PER_S),
            ("request_input_tokens", "Prompt tokens.", "input", 1),
            ("request_cached_tokens", "Prompt tokens that the engine had cached.", "cached", 1),
            ("request_output_tokens", "Output tokens.", "output", 1),
        ):  # fmt: skip
            metric = HistogramMetricFamily(f"fairhit_{name}", words, labels=["model_name"])
            for model, kept in models:
                histogram: Histogram = getattr(kept, attribute)
                rows = _cumulative(histogram, unit)
                metric.add_metric([model or ""], rows, sum_value=histogram.sum / unit)
            yield metric

    # -- engines

    def _workers(self) -> Iterator[Metric]:
        load = load_of(self._dispatcher.router)
        up = _gauge(
            "up", "1 if its health checks pass, also while it drains or its circuit is open."
        )
        exact = _gauge(
            "reports_cached_tokens",
            "1 if the engine reports cached tokens; 0: fair in estimated extend tokens.",
        )
        tokens = _gauge("in_flight_tokens", "Estimated prompt tokens in flight.")
        requests = _gauge("in_flight_requests", "Requests sent to the engine and not finished.")
        limit = _gauge(
            "concurrency_limit", "Most requests in flight at the engine, as learnt or set."
        )
        for name, worker in self._dispatcher.engines.items():
            up.add_metric([name], int(worker.up))
            if worker.reports_cached is not None:
                exact.add_metric([name], int(worker.reports_cached))
            if worker.up and load is not None:
                tokens.add_metric([name], load.tokens(name))
        for name, _, worker in self._watches():
            requests.add_metric([name], len(worker.tickets))
            if worker.limit is not None:
                limit.add_metric([name], worker.limit.size)
        yield from (up, exact, tokens, requests, limit)

    def _prices(self) -> Iterator[Metric]:
        """Prices in force in each engine's queue, for costs that are as simple."""
        queue = self._dispatcher.queue
        source = queue.cost_source()
        price = GaugeMetricFamily(
            "fairhit_queue_price_tokens",
            "Price in the gateway's queue, in computed prompt tokens: of an output; of it, or a prompt "
            "token, for each token before it. source: default, setting or engines.",
            labels=["part", "source"],
        )
        cost = queue.cost if queue.queues else None
        if isinstance(cost, TokenCost | ContextCost) and cost.extend:
            parts = {"output": cost.output}
            if isinstance(cost, ContextCost):
                parts |= {"context": cost.context, "attention": cost.attention}
            for part, units in parts.items():
                price.add_metric([part, source], units / cost.extend)
        yield price

    def _circuits(self) -> Iterator[Metric]:
        circuit = GaugeMetricFamily(
            "fairhit_worker_circuit",
            "1 for the present state of the circuit breaker.",
            labels=["worker", "state"],
        )
        draining = _gauge("draining", "1 while the engine drains: it finishes its requests.")
        faults = CounterMetricFamily(
            "fairhit_worker_faults", "Requests that the engine failed.", labels=["worker", "kind"]
        )
        for url, watch, _ in self._watches():
            draining.add_metric([url], int(watch.draining))
            for phase in Phase:
                circuit.add_metric([url, phase.value], int(watch.engine.breaker.phase is phase))
            for fault in Fault:
                faults.add_metric([url, fault.value], watch.faults.get(fault, 0))
        yield from (circuit, draining, faults)

    def _gaps(self) -> Iterator[Metric]:
        gap = GaugeMetricFamily(
            "fairhit_service_gap_tokens",
            "Widest service gap of two clients that wait, here for any engine; absent while no two do.",
            labels=_WORKER,
        )
        limit = GaugeMetricFamily(
            "fairhit_service_gap_bound_tokens",
            "Bound of that gap under the scheduler, from the largest values seen so far.",
            labels=_WORKER,
        )
        for worst in self._snapshots.gaps:
            gap.add_metric([worst.worker], worst.gap.tokens)
            if worst.bound is not None:
                limit.add_metric([worst.worker], worst.bound)
        yield from (gap, limit)
        yield CounterMetricFamily(
            "fairhit_service_gap_violations",
            "Samples, one per second, with a gap wider than its bound.",
            value=self._snapshots.violations,
        )

    # -- clients, as text

    def _by_client(self) -> Iterator[str]:
        """Families with a sample per client. O(clients * engines)."""
        accounts = list(self._dispatcher.ledger.accounts())
        labels = [label("client", name) for name, _ in accounts]
        services = [account.service for _, account in accounts]
        waiting = self._dispatcher.ledger.waiting
        rows: list[tuple[str, str, str, list[int]]] = [
            ("requests_total", "counter", "Requests accepted.", [a.requests for _, a in accounts]),
            ("requests_in_flight", "gauge", "Requests not finished yet.",
             [account.in_flight for _, account in accounts]),
            ("extend_tokens_total", "counter",
             "Prompt tokens that the engines computed (estimated where not reported).",
             [service.extend_len for service in services]),
            ("cached_tokens_total", "counter",
             "Prompt tokens that the engines had cached (estimated where not reported).",
             [service.cached_len for service in services]),
            ("output_tokens_total", "counter", "Output tokens.",
             [service.output_len for service in services]),
            ("client_service_tokens_total", "counter",
             "Service received: extend + 2 * output tokens of finished requests.",
             [service.system_view() for service in services]),
            ("client_queue_size", "gauge", "Requests waiting in the gateway.",
             [waiting(name) for name, _ in accounts]),
        ]  # fmt: skip
        for name, kind, words, values in rows:
            yield family(name, kind, words, zip(labels, values, strict=True))
        yield family(
            "client_cached_ratio", "gauge",
            "Share of prompt tokens that the engines had cached, since the start of the gateway.",
            (
                (name, service.cached_len / service.input_len)
                for name, service in zip(labels, services, strict=True) if service.input_len
            ),
        )  # fmt: skip
        yield family(
            "client_service_gap_tokens", "gauge",
            "Widest service gap to another client that waits at the same engine; absent if none does.",
            ((label("client", name), gap) for name, gap in self._snapshots.client_gaps.items()),
        )  # fmt: skip
        yield family(
            "client_entitlement_ratio", "gauge",
            "Service of the last minute over the entitlement: weighted max-min of the demands.",
            ((label("client", name), share) for name, share in self._snapshots.entitled.shares.items()),
        )  # fmt: skip
        yield self._credits()
        yield self._router_deficits()
        yield self._waits()

    def _credits(self) -> str:
        """Counters of waiting clients: the counters of others decide nothing now."""
        queueing = self._dispatcher.queue
        rows = []
        if queueing.scheduler in _COUNTING:
            for client in islice(self._dispatcher.ledger.waiting_by_client(), 1000):
                tokens = queueing.credit(client) / UNITS_PER_TOKEN
                rows.append((label("client", client), tokens))
        return family(
            "client_deficit_tokens", "gauge",
            "Credit of a waiting client in the scheduler: q of DLPM, -c of VTC.",
            rows,
        )  # fmt: skip

    def _router_deficits(self) -> str:
        """D2LPM's counters that are not full: most clients have not used all engines."""
        router = self._dispatcher.router
        rows = []
        if isinstance(router, D2LPM):
            up = [name for name, worker in self._dispatcher.engines.items() if worker.up]
            workers = [(name, label("worker", name)) for name in up]
            for client, _ in self._dispatcher.ledger.accounts():
                full, own = router.quantum_of(client), label("client", client)
                for name, worker_label in workers:
                    units = router.deficit(client, name)
                    if units != full:
                        rows.append((f"{own},{worker_label}", units / UNITS_PER_TOKEN))
        return family(
            "worker_deficit_tokens", "gauge",
            "Credit of a client at an engine in D2LPM (q); absent while it is full.",
            rows,
        )  # fmt: skip

    def _waits(self) -> str:
        lines = [
            f"# HELP {_WAIT} From arrival until the request was sent to an engine.\n",
            f"# TYPE {_WAIT} histogram\n",
        ]
        for client, kept in self._recorder.clients.items():
            numbers = tuple(accumulate(kept.wait.buckets))
            text = _WAIT_LINES % (*numbers, numbers[-1], kept.wait.sum / _PER_S)
            lines.append(text.replace(_CLIENT, label("client", client)))
        return "".join(lines)


class ConnectionMetrics(Collector):
    """Client connections by state, and connections closed or refused for want of capacity."""

    def __init__(
        self, connections: Connections[ClientConnection], limit: Callable[[], int]
    ) -> None:
        self._connections = connections
        self._limit = limit

    def collect(self) -> Iterator[Metric]:
        states = GaugeMetricFamily(
            "fairhit_connections",
            "Client connections. new: no admitted request yet; reserve: beyond the limit.",
            labels=["state"],
        )
        for state, number in self._connections.states().items():
            states.add_metric([state], number)
        yield states
        yield GaugeMetricFamily(
            "fairhit_connections_limit",
            "Most connections open at once: --max-connections, or what file descriptors allow.",
            value=self._limit(),
        )
        shed = CounterMetricFamily(
            "fairhit_connections_shed",
            "Closed to admit others (new, idle, slow), or answered 503 (limit, address, descriptors).",
            labels=["reason"],
        )
        for reason, number in self._connections.turned_away.items():
            shed.add_metric([reason], number)
        yield shed


def family(name: str, kind: str, words: str, rows: Iterable[tuple[str, float]]) -> str:
    """Text of one metric; a row is labels and value."""
    name = f"fairhit_{name}"
    lines = [f"{name}{{{labels}}} {float(value)}\n" for labels, value in rows]
    return f"# HELP {name} {words}\n# TYPE {name} {kind}\n{''.join(lines)}"


def label(name: str, value: str) -> str:
    """A label as text. Clients' names are printable: only these two characters need escapes."""
    value = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}="{value}"'


def _gauge(kind: str, words: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"fairhit_worker_{kind}", words, labels=_WORKER)


def _cumulative(histogram: Histogram, unit: int) -> list[tuple[str, float]]:
    """Buckets as Prometheus has them: upper bound, and the number of values up to it."""
    bounds = [f"{upper / unit:g}" if unit > 1 else str(upper) for upper in histogram.bounds]
    return [
        (upper, float(number))
        for upper, number in zip([*bounds, "+Inf"], accumulate(histogram.buckets), strict=True)
    ]
