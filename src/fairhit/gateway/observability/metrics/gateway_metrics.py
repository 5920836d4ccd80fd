"""The gateway's metrics, read from the dispatcher when somebody asks: requests pay nothing for them."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fairhit.core.service import UNITS_PER_TOKEN
from fairhit.dispatch import Dispatcher
from fairhit.gateway.http.engine_connection import Fault
from fairhit.gateway.observability.metrics.exposition import Exposition, family, label
from fairhit.gateway.pool.circuit_breaker import Phase
from fairhit.gateway.pool.engine_pool import EnginePool
from fairhit.gateway.pool.retry import Retries
from fairhit.routers.d2lpm import D2LPM
from fairhit.routers.least_loaded import LeastLoaded


class GatewayMetrics(Collector):
    """Counters per client (the ledger bounds how many), per worker, and of answers by status."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        more: Exposition | None = None,
        *,
        workers: EnginePool | None = None,
        retries: Retries | None = None,
    ) -> None:
        self._dispatcher = dispatcher
        self._more = more
        self._fleet = workers
        self._retries = retries
        self._answers: dict[int, int] = {}
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def add(self, collector: Collector) -> None:
        """Metrics of somebody else's, to be exposed with these."""
        self._registry.register(collector)

    def count(self, status: int) -> None:
        """An answer with this status begins."""
        self._answers[status] = self._answers.get(status, 0) + 1

    def exposition(self) -> bytes:
        """All metrics in Prometheus's text format. O(clients * workers)."""
        per_client = "".join((*self._clients(), self._deficits()))
        if self._more is not None:
            per_client += "".join(self._more.of_clients())
        return generate_latest(self._registry) + per_client.encode()

    def collect(self) -> Iterator[Metric]:
        yield from self._workers()
        if self._more is not None:
            yield from self._more.of_all()
        answers = CounterMetricFamily(
            "fairhit_responses", "Answers to callers, by HTTP status.", labels=["code"]
        )
        for status, number in sorted(self._answers.items()):
            answers.add_metric([str(status)], number)
        yield answers
        yield CounterMetricFamily(
            "fairhit_retries", "Requests sent to another engine.", value=self._dispatcher.retries
        )
        if self._retries is not None:
            yield CounterMetricFamily(
                "fairhit_retries_refused",
                "Retries that the budget did not allow.",
                value=self._retries.budget.refused,
            )
        if self._fleet is not None:
            yield from self._circuits(self._fleet)

    def _circuits(self, workers: EnginePool) -> Iterator[Metric]:
        circuit = GaugeMetricFamily(
            "fairhit_worker_circuit",
            "1 for the state that its circuit breaker is in.",
            labels=["worker", "state"],
        )
        draining = GaugeMetricFamily(
            "fairhit_worker_draining", "1 while it finishes what it has.", labels=["worker"]
        )
        faults = CounterMetricFamily(
            "fairhit_worker_faults", "Requests it failed, by kind.", labels=["worker", "kind"]
        )
        for url, watch, _ in workers.watches():
            draining.add_metric([url], int(watch.draining))
            for phase in Phase:
                circuit.add_metric([url, phase.value], int(watch.engine.breaker.phase is phase))
            for fault in Fault:
                faults.add_metric([url, fault.value], watch.faults.get(fault, 0))
        yield from (circuit, draining, faults)

    def _clients(self) -> Iterator[str]:
        labels, accounts = [], []
        for client, account in self._dispatcher.ledger.accounts():
            labels.append(label("client", client))
            accounts.append(account)
        services = [account.service for account in accounts]
        rows: list[tuple[str, str, str, list[int]]] = [
            ("requests_total", "counter", "Requests accepted.", [a.requests for a in accounts]),
            ("requests_in_flight", "gauge", "Requests not ended yet.",
             [a.in_flight for a in accounts]),
            ("extend_tokens_total", "counter",
             "Prompt tokens the engines computed (estimated where not reported).",
             [s.extend_len for s in services]),
            ("cached_tokens_total", "counter",
             "Prompt tokens the engines had cached (estimated where not reported).",
             [s.cached_len for s in services]),
            ("output_tokens_total", "counter", "Tokens emitted.",
             [s.output_len for s in services]),
        ]  # fmt: skip
        for name, kind, text, values in rows:
            yield family(name, kind, text, zip(labels, values, strict=True))

    def _deficits(self) -> str:
        """Those of clients that have used some of theirs: most have not been everywhere."""
        router = self._dispatcher.router
        rows = []
        if isinstance(router, D2LPM):
            up = [name for name, worker in self._dispatcher.workers.items() if worker.up]
            workers = [(name, label("worker", name)) for name in up]
            for client, _ in self._dispatcher.ledger.accounts():
                full, own = router.quantum_of(client), label("client", client)
                for name, worker_label in workers:
                    units = router.deficit(client, name)
                    if units != full:
                        rows.append((f"{own},{worker_label}", units / UNITS_PER_TOKEN))
        return family(
            "worker_deficit_tokens",
            "gauge",
            "q of D2LPM: what the client may still send there before the others have their share; "
            "absent while it is full.",
            rows,
        )

    def _workers(self) -> Iterator[Metric]:
        named = ["worker"]
        up = GaugeMetricFamily(
            "fairhit_worker_up",
            "1 while its probes are good, also while it drains or its circuit is open.",
            labels=named,
        )
        exact = GaugeMetricFamily(
            "fairhit_worker_reports_cached_tokens",
            "1 if the engine reports cached tokens; 0: fair in estimated extend.",
            labels=named,
        )
        outstanding = GaugeMetricFamily(
            "fairhit_worker_in_flight_tokens", "Estimated tokens in flight.", labels=named
        )
        router = self._dispatcher.router
        for name, worker in self._dispatcher.workers.items():
            up.add_metric([name], int(worker.up))
            if worker.reports_cached is not None:
                exact.add_metric([name], int(worker.reports_cached))
            if worker.up and isinstance(router, D2LPM | LeastLoaded):
                outstanding.add_metric([name], router.outstanding(name))
        yield from (up, exact, outstanding)
