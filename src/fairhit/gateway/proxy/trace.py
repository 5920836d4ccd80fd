"""What a request carries while it is traced; needs no package that traces are sent with."""

from typing import NamedTuple


class Trace(NamedTuple):
    """Ids of a sampled request: its trace, the caller's span (0: none), its own three."""

    trace_id: int
    parent: int
    span: int
    engine: int
    wait: int
