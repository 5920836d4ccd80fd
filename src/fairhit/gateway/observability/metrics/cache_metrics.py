"""Metrics of what is known of the engines' caches: errors of estimates, events, the tokenizer's cost."""

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
from fairhit.gateway.prefix.engine_caches import Caches
from fairhit.gateway.prefix.tokenizer import Tokenizer

_WORKER = ["worker"]


class CacheMetrics(Collector):
    """Reads what is counted anyway, when somebody asks. O(workers)."""

    def __init__(self, estimates: EstimateErrors, caches: Caches) -> None:
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
            "Tokens estimated too many (cached, and not known to be) and too few.",
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
            "How much of the engine's cache its events have told: 0 nothing, 1 a part, 2 all.",
            labels=_WORKER,
        )
        blocks = GaugeMetricFamily(
            "fairhit_kv_cache_blocks", "Blocks that its events have confirmed.", labels=_WORKER
        )
        batches = CounterMetricFamily(
            "fairhit_kv_event_batches", "Batches of KV events taken.", labels=_WORKER
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
            troubles.add_metric([worker, "orphaned"], counts.unplaced)
            troubles.add_metric([worker, "unconfirmed"], counts.disproved)
        yield from (known, blocks, batches, troubles)


def _tokenizing(tokenizer: Tokenizer) -> Iterator[Metric]:
    cost, pieces = tokenizer.cost, tokenizer.pieces
    prompts = CounterMetricFamily(
        "fairhit_tokenizer_prompts",
        "Prompts tokenized; exact: the tokens are those that the engine sees.",
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
        "fairhit_tokenizer_cpu_seconds", "Processor time of tokenizing.", value=cost.seconds
    )
    yield CounterMetricFamily("fairhit_tokenizer_tokens", "Tokens made.", value=cost.tokens)
    yield GaugeMetricFamily(
        "fairhit_tokenizer_cache_bytes", "Text and tokens kept.", value=pieces.size()
    )
