"""Per-client metrics: the names are bounded, and what is written is what was counted."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from fairhit.client_names import MAX_CLIENT_LEN, client_name
from fairhit.engines.vllm.identity import client_of


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("team/a@x.org", "team/a@x.org"),
        (7, "7"),
        ("", "anonymous"),
        (None, "anonymous"),
        (True, "anonymous"),
        (["a"], "anonymous"),
        ('a"} 1\nfake{b="', "a___1_fake_b=_~4e37f29ae1380ad1"),
        ("x" * 500, "x" * 111 + "~c38c2bf3055c516a"),
    ],
)
def test_a_client_s_name_is_bounded_and_safe_in_a_label(value, name):
    assert client_name(value) == name
    assert len(name) <= MAX_CLIENT_LEN and client_name(name) == name


def test_clients_of_other_scripts_and_of_long_names_have_accounts_of_their_own():
    """Names once collided: characters outside ASCII became underscores, and the end beyond 128 was cut."""
    names = [
        "山田",
        "佐藤",
        "__",
        "Иван",
        "Олег",
        "x" * 128,
        "x" * 129,
        "x" * 128 + "y",
        "a b",
        "a\tb",
    ]

    assert len({client_name(name) for name in names}) == len(names)


def request(extra_args=None, lora=None, *, is_pooling=False):
    return SimpleNamespace(
        sampling_params=None if is_pooling else SimpleNamespace(extra_args=extra_args),
        lora_request=SimpleNamespace(lora_name=lora) if lora else None,
    )


def test_who_a_request_belongs_to():
    """The client is the name from gateway or middleware, else the LoRA adapter, else `anonymous`."""
    assert client_of(request({"fair_client": "a"}, lora="l")) == "a"
    assert client_of(request({"other": 1}, lora="l")) == "l"
    assert client_of(request()) == "anonymous"
    assert client_of(request(is_pooling=True)) == "anonymous"


SCRIPT = """
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from fairhit.core.costs import ContextCost
from fairhit.engines import client_metrics as metrics
metrics.MAX_LABELS = 2
waiting, deficits = {"a": 3, "b": 0, "c": 9}, {"a": 1.5, "b": 1.5, "c": 1.5}
totals = metrics.EngineTotals(recomputed_len=5, refill_rounds=2, truncated_passes=1)
cost = ContextCost(output=150_000_000, context=250_000)
charges = {"a": 150_000_000, "b": -50_000_000}
m = metrics.ClientMetrics(
    waiting=waiting.get, deficit=deficits.get, totals=lambda: totals, cost=lambda: cost,
    charges=lambda: charges,
)
m.show()
for client in CLIENTS:
    service = m.touch(client)
    service.extend_len += 10
    service.cached_len += 4
    service.output_len += 1
    m.add_seconds(client, 0.25)
m.flush(is_idle=True)
charges["a"] = 25_000_000
charges["b"] += 75_000_000
m.touch("a").output_len += 1
m.flush(is_idle=False)
waiting["b"], deficits["b"] = 7, 4096.0
totals = totals._replace(recomputed_len=9)
cost = ContextCost(output=300_000_000, context=250_000)
if LATER:
    metrics.FLUSH_INTERVAL_S = 0
    m.flush(is_idle=False)
registry = CollectorRegistry()
MultiProcessCollector(registry)
print(generate_latest(registry).decode())
"""


def exposition(tmp_path, *, clients="abca", later=False) -> set[str]:
    """Return the metrics of a new process, as prometheus_client decides at import how to count."""
    run = subprocess.run(
        [sys.executable, "-c", f"LATER, CLIENTS = {later}, {clients!r}\n{SCRIPT}"],
        env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )

    return set(run.stdout.splitlines())


def test_counters_reach_the_engine_s_own_metrics_with_bounded_labels(tmp_path):
    lines = exposition(tmp_path)

    assert {
        'fairhit_extend_tokens_total{client="a"} 20.0',
        'fairhit_cached_tokens_total{client="a"} 8.0',
        'fairhit_output_tokens_total{client="a"} 2.0',
        'fairhit_service_tokens_total{client="a"} 24.0',
        'fairhit_service_tokens_total{client="other"} 12.0',
        'fairhit_charged_tokens_total{client="a"} 1.5',
        'fairhit_engine_seconds_total{client="a"} 0.5',
        'fairhit_engine_seconds_total{client="other"} 0.25',
        'fairhit_waiting_requests{client="a"} 3.0',
        'fairhit_deficit_tokens{client="b"} 1.5',
        "fairhit_recomputed_tokens_total 5.0",
        'fairhit_price_tokens{part="output"} 1.5',
        'fairhit_price_tokens{part="context"} 0.0025',
        'fairhit_price_tokens{part="attention"} 0.0',
        "fairhit_refill_rounds_total 2.0",
        "fairhit_truncated_passes_total 1.0",
    } <= lines
    assert not [line for line in lines if 'client="c"' in line]
    assert 'fairhit_waiting_requests{client="other"} 9.0' not in lines


def test_gauges_follow_clients_that_get_nothing(tmp_path):
    """Others' service refills them, and their requests queue up, though no call names them."""
    assert {
        'fairhit_waiting_requests{client="b"} 7.0',
        'fairhit_deficit_tokens{client="b"} 4096.0',
        'fairhit_output_tokens_total{client="a"} 3.0',
        'fairhit_charged_tokens_total{client="a"} 1.75',
        'fairhit_charged_tokens_total{client="b"} 0.25',
        "fairhit_recomputed_tokens_total 9.0",
        'fairhit_price_tokens{part="output"} 3.0',
    } <= exposition(tmp_path, later=True)


def test_an_engine_that_has_served_no_client_shows_that_it_has_the_plug_in(tmp_path):
    """A gateway is to know that before it sends the first request."""
    assert "fairhit_refill_rounds_total 0.0" in exposition(tmp_path, clients="")
