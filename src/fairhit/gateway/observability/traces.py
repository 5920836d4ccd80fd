"""Traces of requests (W3C Trace Context), exported by OTLP over HTTP: request, wait, engine.

A request is sampled if its client sampled it; of requests without a context a share is. Spans are made
by a thread after a request has finished, from what is kept of it anyway. Needs the extra `traces`.
"""

import random
import re
from collections.abc import Sequence
from typing import NamedTuple

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from fairhit.gateway.observability.outbox import Outbox
from fairhit.gateway.proxy.exchange import Exchange
from fairhit.gateway.proxy.trace import Trace

# W3C Trace Context, level 1; an id of zeros is invalid.
_CONTEXT = re.compile(
    rb"[ \t]*(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})"
    rb"(?:-[^\r]*)?[ \t]*",
    re.IGNORECASE,
)
_LINE = re.compile(rb"^traceparent:([^\r\n]*)\r\n", re.IGNORECASE | re.MULTILINE)
_SAMPLED = 1
_EXPORT_S = 10.0


class _Ended(NamedTuple):
    """A finished request until its spans are made. Times are in ns since 1970, 0 for never."""

    trace: Trace
    arrived: int
    sent: int
    first: int
    ended: int
    status: int
    attributes: dict[str, str | int]


class Traces:
    """Traces sampled requests and exports their spans to `endpoint`."""

    def __init__(self, endpoint: str, *, ratio: float, rng: random.Random) -> None:
        assert 0 <= ratio <= 1, ratio
        self._ratio = ratio
        self._rng = rng
        self._exporter = OTLPSpanExporter(endpoint=endpoint, timeout=_EXPORT_S)
        self._resource = Resource.create({"service.name": "fairhit-gateway"})
        self.outbox: Outbox[_Ended] = Outbox(self._send, most=10_000)

    def begin(self, lines: bytes) -> tuple[Trace | None, bytes]:
        """The trace of a request with headers `lines` (None: not sampled), and its headers for the engine.

        The client's `traceparent` is always replaced by the gateway's: the parent of the engine's spans,
        or one that is not sampled.
        """
        given = _LINE.findall(lines)
        if given:
            lines = _LINE.sub(b"", lines)
        found = _CONTEXT.fullmatch(given[0]) if len(given) == 1 else None
        draw = self._rng.getrandbits
        if found is not None:
            trace_id, parent = int(found[1], 16), int(found[2], 16)
            sampled = bool(int(found[3], 16) & _SAMPLED)
        else:
            trace_id, parent = draw(128) or 1, 0
            sampled = self._rng.random() < self._ratio
        if not sampled:
            own = parent or draw(64) or 1
            return None, lines + b"traceparent: 00-%032x-%016x-00\r\n" % (trace_id, own)
        trace = Trace(trace_id, parent, draw(64) or 1, draw(64) or 1, draw(64) or 1)
        return trace, lines + b"traceparent: 00-%032x-%016x-01\r\n" % (trace_id, trace.engine)

    def record(
        self, trace: Trace, exchange: Exchange, status: int, *, time_s: float, now_s: float
    ) -> None:
        """Add a finished request, which has been charged."""
        ticket = exchange.ticket
        attributes: dict[str, str | int] = {
            "gen_ai.operation.name": exchange.endpoint.name,
            "gen_ai.request.model": ticket.model or "",
            "gen_ai.usage.input_tokens": ticket.final_len and ticket.final_len + ticket.matched_len,
            "gen_ai.usage.output_tokens": ticket.output_len if ticket.final_len else 0,
            "gen_ai.usage.cached_tokens": ticket.matched_len if ticket.final_len else 0,
            "http.response.status_code": status,
            "fairhit.client": ticket.request.client,
            "server.address": ticket.worker,
        }

        def at(moment_s: float) -> int:
            return int((time_s - (now_s - moment_s)) * 1e9) if moment_s else 0

        times = (at(exchange.arrived_s), at(exchange.sent_s), at(exchange.first_s), at(now_s))
        self.outbox.add(_Ended(trace, *times, status, attributes))

    async def close(self) -> None:
        """Export the remaining spans."""
        await self.outbox.close()
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def _send(self, batch: list[_Ended]) -> None:
        spans = [span for ended in batch for span in self._spans(ended)]
        if self._exporter.export(spans) is not SpanExportResult.SUCCESS:
            raise ConnectionError("the trace collector rejected a batch")

    def _spans(self, ended: _Ended) -> Sequence[ReadableSpan]:
        trace = ended.trace
        root = _context(trace.trace_id, trace.span)
        parent = _context(trace.trace_id, trace.parent, is_remote=True) if trace.parent else None
        failed = ended.status >= 500
        spans = [
            self._span(
                f"POST {ended.attributes['gen_ai.operation.name']}",
                context=root,
                parent=parent,
                times=(ended.arrived, ended.ended),
                kind=SpanKind.SERVER,
                attributes=ended.attributes,
                failed=failed,
            ),
            self._span(
                "wait",
                context=_context(trace.trace_id, trace.wait),
                parent=root,
                times=(ended.arrived, ended.sent or ended.ended),
                kind=SpanKind.INTERNAL,
                attributes={},
            ),
        ]
        if ended.sent:
            attributes: dict[str, str | int] = {
                "server.address": ended.attributes["server.address"]
            }
            if ended.first:
                attributes["fairhit.ttft_us"] = (ended.first - ended.sent) // 1000
            spans.append(
                self._span(
                    "engine",
                    context=_context(trace.trace_id, trace.engine),
                    parent=root,
                    times=(ended.sent, ended.ended),
                    kind=SpanKind.CLIENT,
                    attributes=attributes,
                    failed=failed,
                )
            )
        return spans

    def _span(
        self,
        name: str,
        *,
        context: SpanContext,
        parent: SpanContext | None,
        times: tuple[int, int],
        kind: SpanKind,
        attributes: dict[str, str | int],
        failed: bool = False,
    ) -> ReadableSpan:
        return ReadableSpan(
            name,
            context=context,
            parent=parent,
            resource=self._resource,
            attributes=attributes,
            kind=kind,
            status=Status(StatusCode.ERROR if failed else StatusCode.UNSET),
            start_time=times[0],
            end_time=times[1],
        )


def _context(trace_id: int, span_id: int, *, is_remote: bool = False) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=is_remote, trace_flags=TraceFlags(_SAMPLED))
