"""The context that a request came with, however its lines are held."""

import random
from collections.abc import Iterator

import pytest

pytest.importorskip("opentelemetry")  # of the extra `traces`

from fairhit.gateway.observability.traces import Traces

TRACE, SPAN = 0xABC, 0xDEF
CONTEXT = b"TraceParent: 00-%032x-%016x-01\r\n" % (TRACE, SPAN)


@pytest.fixture
def traces() -> Iterator[Traces]:
    made = Traces("http://127.0.0.1:1", ratio=0.0, rng=random.Random(1))
    yield made
    made._exporter.shutdown()  # type: ignore[no-untyped-call]


def test_the_callers_context_is_found_and_replaced(traces: Traces) -> None:
    trace, lines = traces.begin(b"accept: */*\r\n" + CONTEXT + b"x-traceparent: no\r\n")

    assert trace is not None and (trace.trace_id, trace.parent) == (TRACE, SPAN)
    head = b"accept: */*\r\nx-traceparent: no\r\n"
    own = b"traceparent: 00-%032x-%016x-01\r\n" % (TRACE, trace.engine)
    assert lines == head + own


def test_of_two_contexts_none_is_believed_and_none_goes_on(traces: Traces) -> None:
    trace, lines = traces.begin(CONTEXT + b"accept: */*\r\n" + CONTEXT)

    assert trace is None
    assert lines.lower().count(b"traceparent") == 1
