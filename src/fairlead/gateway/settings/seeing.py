"""Settings of what operators see: metrics, the access log, traces."""

from fairlead.gateway.settings.declaring import Group, setting
from fairlead.gateway.settings.values import HttpUrl, Text


class Watching(Group):
    """Metrics, log and traces."""

    metrics_max_clients: int = setting(
        1000, "clients with a label of their own, the others share `other`", "N", ge=1, le=100_000
    )
    access_log: Text | None = setting(None, "a line of JSON for each request; -: on stdout", "FILE")
    otlp_traces_endpoint: HttpUrl | None = setting(
        None, "send traces there by OTLP over HTTP", "URL", also=("otlp_endpoint",)
    )
    trace_ratio: float = setting(
        0.01, "share of requests traced that come without a trace", "SHARE", ge=0, le=1
    )
