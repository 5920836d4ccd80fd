"""Metrics of the cache index: errors of estimates, KV events, the cost of the tokenizer."""

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from fairhit.dispatch.accounting.estimate_errors import BOUNDS, EstimateErrors
from fairhit.gateway.prefix.engine_caches import EngineCaches
from fairhit.gateway.prefix.tokenizer import Tokenizer

_WORKER = ["worker"]


class CacheMetrics(Collector):
    """Reads existing counters on demand. O(engines)."""

    def __init__(self, estimates: EstimateErrors, caches: EngineCaches) -> None:
        self._estimates = estimates
        self._caches = caches

    def collect(self) -> Iterator[Metric]:
        yield from self._errors()
        counts = self._caches.counts()
        if counts:
            yield from self._events()
        tokenizer = self._caches.tokenizer
        if tokenizer is not None:
            yield from _tokenizing(tokenizer)

    def _errors(self) -> Iterator[Metric]:
        share = HistogramMetricFamily(
            "fairhit_estimate_error_ratio",
            "Prompt tokens to compute: |estimated - reported| / prompt, where the engine reports.",
            labels=_WORKER,
        )
        off = CounterMetricFamily(
            "fairhit_estimate_error_tokens",
            "Computed prompt tokens estimated too high (over: they were cached) and too low (under).",
            labels=["worker", "direction"],
        )
        bounds = [*map(str, BOUNDS), "+Inf"]
        for worker, error in self._estimates.of_each().items():
            counted = list(zip(bounds, accumulate(error.buckets), strict=True))
            share.add_metric([worker], counted, sum_value=error.sum)
            off.add_metric([worker, "over"], error.over)
            off.add_metric([worker, "under"], error.under)
        yield from (share, off)

    def _events(self) -> Iterator[Metric]:
        known = GaugeMetricFamily(
            "fairhit_kv_cache_coverage",
            "How much of the engine's cache is known by KV events: 0 nothing, 1 part, 2 all.",
            labels=_WORKER,
        )
        blocks = GaugeMetricFamily(
            "fairhit_kv_cache_blocks", "Cached blocks confirmed by KV events.", labels=_WORKER
        )
        batches = CounterMetricFamily(
            "fairhit_kv_event_batches", "Batches of KV events applied.", labels=_WORKER
        )
        troubles = CounterMetricFamily(
            "fairhit_kv_event_errors",
            "Irregularities in the stream of KV events, by kind.",
            labels=["worker", "kind"],
        )
        for worker, counts in self._caches.counts().items():
            known.add_metric([worker], counts.knowledge)
            blocks.add_metric([worker], counts.confirmed)
            batches.add_metric([worker], counts.total("batches"))
            for kind in ("gaps", "replays", "restarts", "resets", "malformed"):
                troubles.add_metric([worker, kind], counts.total(kind))
            troubles.add_metric([worker, "orphaned"], counts.orphaned)
            troubles.add_metric([worker, "unconfirmed"], counts.unconfirmed)
        yield from (known, blocks, batches, troubles)


def _tokenizing(tokenizer: Tokenizer) -> Iterator[Metric]:
    cost, pieces = tokenizer.cost, tokenizer.pieces
    prompts = CounterMetricFamily(
        "fairhit_tokenizer_prompts",
        "Prompts tokenized; exact: the same tokens as in the engine.",
        labels=["exact"],
    )
    prompts.add_metric(["yes"], cost.exact)
    prompts.add_metric(["no"], cost.prompts - cost.exact)
    characters = CounterMetricFamily(
        "fairhit_tokenizer_characters",
        "Characters of prompts; cached: their tokens were in the tokenizer's cache.",
        labels=["cached"],
    )
    characters.add_metric(["yes"], pieces.hits)
    characters.add_metric(["no"], pieces.misses)
    yield prompts
    yield characters
    yield CounterMetricFamily(
        "fairhit_tokenizer_cpu_seconds", "CPU time of tokenizing.", value=cost.seconds
    )
    yield CounterMetricFamily("fairhit_tokenizer_tokens", "Tokens of prompts.", value=cost.tokens)
    yield GaugeMetricFamily(
        "fairhit_tokenizer_cache_bytes",
        "Size of the tokenizer's cache: text and tokens.",
        value=pieces.size(),
    )
