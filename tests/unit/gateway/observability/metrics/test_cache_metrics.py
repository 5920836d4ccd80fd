"""Metrics of the cache index, the KV events and the tokenizer."""

import json
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from fairhit.dispatch.accounting.estimate_errors import EstimateErrors
from fairhit.errors import ConfigError
from fairhit.gateway.api.endpoints.openai import COMPLETIONS
from fairhit.gateway.api.request_body import parse_body
from fairhit.gateway.observability.metrics.cache_metrics import CacheMetrics
from fairhit.gateway.prefix.engine_caches import EngineCaches
from fairhit.gateway.settings import GatewaySettings

tokenizers = pytest.importorskip("tokenizers", reason="the extra `tokenizer` is not installed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def no_adapter(name: str) -> bool:
    return False


def test_errors_of_estimates_are_a_histogram_and_have_a_direction() -> None:
    estimates, registry = EstimateErrors(), CollectorRegistry()
    registry.register(
        CacheMetrics(estimates, EngineCaches(GatewaySettings(), is_adapter=no_adapter))
    )
    for estimated in (100, 90, 40):
        estimates.compare("w", estimated=estimated, reported=90, prompt_len=1000)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(
            f"fairhit_estimate_error_{name}", {"worker": "w", **labels}
        )

    assert value("ratio_count") == 3
    assert value("ratio_sum") == pytest.approx(0.06)
    assert [value("ratio_bucket", le=bound) for bound in ("0.0", "0.01", "0.05", "+Inf")] == [
        1,
        2,
        3,
        3,
    ]
    assert value("tokens_total", direction="over") == 10
    assert value("tokens_total", direction="under") == 50

    estimates.forget("w")
    assert value("ratio_count") is None


def test_the_cost_of_the_tokenizer_is_counted(folder: Path) -> None:
    caches, registry = (
        EngineCaches(GatewaySettings(tokenizer=folder), is_adapter=no_adapter),
        CollectorRegistry(),
    )
    registry.register(CacheMetrics(EstimateErrors(), caches))
    assert caches.tokenizer is not None
    for prompt in ("a", ["a", "a"]):
        body = json.dumps({"model": "m", "prompt": prompt}).encode()
        caches.tokenizer.prompt(parse_body(body, COMPLETIONS))

    value = registry.get_sample_value
    assert value("fairhit_tokenizer_prompts_total", {"exact": "yes"}) == 1
    assert value("fairhit_tokenizer_prompts_total", {"exact": "no"}) == 1
    assert value("fairhit_tokenizer_characters_total", {"cached": "yes"}) == 2
    assert value("fairhit_tokenizer_characters_total", {"cached": "no"}) == 1
    assert (value("fairhit_tokenizer_cpu_seconds_total") or 0) > 0


def test_events_without_a_tokenizer_are_refused() -> None:
    """The approximate index cannot use KV events."""
    with pytest.raises(ConfigError, match="--tokenizer"):
        EngineCaches(GatewaySettings(kv_events_port=5557), is_adapter=no_adapter)


@pytest.mark.parametrize("worker", ["http://host:8000", "http://[::1]:8000"])
def test_endpoints_are_configured_by_engine_or_by_port(folder: Path, worker: str) -> None:
    named = {"http://other:1": ("tcp://other:7", "tcp://other:8")}
    settings = GatewaySettings(
        tokenizer=folder, kv_events_port=5557, kv_events_replay_port=5558, kv_events_endpoint=named
    )
    caches = EngineCaches(settings, is_adapter=no_adapter)
    host = "[::1]" if "[" in worker else "host"

    usual = caches._endpoints(worker)
    configured = caches._endpoints("http://other:1")

    assert usual == ((f"tcp://{host}:5557", f"tcp://{host}:5558"),)
    assert configured == (("tcp://other:7", None), ("tcp://other:8", None))
