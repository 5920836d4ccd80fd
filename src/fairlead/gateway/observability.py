"""The gateway's metrics, read from the dispatcher when somebody asks: requests pay nothing for them."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fairlead.core.service import UNITS_PER_TOKEN
from fairlead.dispatch import Dispatcher
from fairlead.routers.d2lpm import D2LPM
from fairlead.routers.least_loaded import LeastLoaded


class Observability(Collector):
    """Counters per client (the ledger bounds how many), per worker, and of answers by status."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._answers: dict[int, int] = {}
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def count(self, status: int) -> None:
        """An answer with this status begins."""
        self._answers[status] = self._answers.get(status, 0) + 1

    def exposition(self) -> bytes:
        """All metrics in Prometheus's text format. O(clients * workers)."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        yield from self._clients()
        yield from self._workers()
        answers = CounterMetricFamily(
            "fairlead_responses", "Answers to callers, by HTTP status.", labels=["code"]
        )
        for status, number in sorted(self._answers.items()):
            answers.add_metric([str(status)], number)
        yield answers
        yield CounterMetricFamily(
            "fairlead_retries", "Requests sent to another engine.", value=self._dispatcher.retries
        )

    def _clients(self) -> Iterator[Metric]:
        named = ["client"]
        requests = CounterMetricFamily("fairlead_requests", "Requests accepted.", labels=named)
        in_flight = GaugeMetricFamily(
            "fairlead_requests_in_flight", "Requests not ended yet.", labels=named
        )
        tokens = {
            kind: CounterMetricFamily(f"fairlead_{kind}_tokens", text, labels=named)
            for kind, text in (
                ("extend", "Prompt tokens the engines computed (estimated where not reported)."),
                ("cached", "Prompt tokens the engines had cached (estimated where not reported)."),
                ("output", "Tokens emitted."),
            )
        }
        for client, account in self._dispatcher.ledger.accounts():
            requests.add_metric([client], account.requests)
            in_flight.add_metric([client], account.in_flight)
            tokens["extend"].add_metric([client], account.service.extend_len)
            tokens["cached"].add_metric([client], account.service.cached_len)
            tokens["output"].add_metric([client], account.service.output_len)
        yield from (requests, in_flight, *tokens.values())

    def _workers(self) -> Iterator[Metric]:
        named = ["worker"]
        up = GaugeMetricFamily("fairlead_worker_up", "1 while it takes requests.", labels=named)
        exact = GaugeMetricFamily(
            "fairlead_worker_reports_cached_tokens",
            "1 if the engine reports cached tokens; 0: fair in estimated extend.",
            labels=named,
        )
        outstanding = GaugeMetricFamily(
            "fairlead_worker_outstanding_tokens", "Estimated tokens in flight.", labels=named
        )
        deficit = GaugeMetricFamily(
            "fairlead_worker_deficit_tokens",
            "q of D2LPM: what the client may still send there before the others have their share.",
            labels=["client", "worker"],
        )
        router = self._dispatcher.router
        for name, worker in self._dispatcher.workers.items():
            up.add_metric([name], int(worker.up))
            if worker.reports_cached is not None:
                exact.add_metric([name], int(worker.reports_cached))
            if worker.up and isinstance(router, D2LPM | LeastLoaded):
                outstanding.add_metric([name], router.outstanding(name))
            if worker.up and isinstance(router, D2LPM):
                for client, _ in self._dispatcher.ledger.accounts():
                    tokens = router.deficit(client, name) / UNITS_PER_TOKEN
                    deficit.add_metric([client, name], tokens)
        yield from (up, exact, outstanding, deficit)
