"""Metrics of the callers' connections: how many there are, of which kind, and who found no place."""

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fairhit.gateway.http.accept.connections import Connections
from fairhit.gateway.http.client_connection import CallerConnection


class ConnectionMetrics(Collector):
    """Reads what `connections` counts; `limit` is how many there may be now."""

    def __init__(
        self, connections: Connections[CallerConnection], limit: Callable[[], int]
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
        away = CounterMetricFamily(
            "fairhit_connections_shed",
            "Closed to admit others (new, idle, slow), or answered 503 (limit, address, descriptors).",
            labels=["reason"],
        )
        for reason, number in self._connections.turned_away.items():
            away.add_metric([reason], number)
        yield away
