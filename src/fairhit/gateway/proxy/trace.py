"""The ids of a traced request; needs no package of OpenTelemetry."""

from typing import NamedTuple


class Trace(NamedTuple):
    """Ids of a sampled request: its trace, the client's span (0: none), and three spans of its own."""

    trace_id: int
    parent: int
    span: int
    engine: int
    wait: int
