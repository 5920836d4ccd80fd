"""Settings of what operators see: metrics, the access log, traces."""

from fairlead.gateway.settings.declaring import Group, setting


class Watching(Group):
    """Metrics, log and traces."""

    metrics_max_clients: int = setting(
        1000, "clients with a label of their own, the others share `other`", "N", ge=1, le=100_000
    )
