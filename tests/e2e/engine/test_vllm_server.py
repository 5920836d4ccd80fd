"""The plug-in in a real vLLM server, by its three flags: streams, identity, metrics, aborts, bad settings."""

import json
import time
from collections.abc import Callable

import pytest

pytest.importorskip("vllm")
pytestmark = [pytest.mark.e2e, pytest.mark.vllm]

from tests.e2e.engine.server import START_TIMEOUT_S, running  # noqa: E402

STORY = "The quick brown fox jumps over the lazy dog. " * 8


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("server"), scheduler="dlpm", quantum=512) as one:
        one.wait_until_it_answers()
        yield one


def soon(true: Callable[[], bool], *, within_s: float = 5.0) -> bool:
    """Counters are flushed once a second."""
    deadline_s = time.monotonic() + within_s
    while time.monotonic() < deadline_s:
        if true():
            return True
        time.sleep(0.1)
    return true()


def test_before_it_is_asked_anything_it_shows_that_it_has_the_plug_in(server):
    assert any(line.startswith("fairhit_refill_rounds") for line in server.shown_at_first)
    assert not [line for line in server.shown_at_first if "client=" in line]


def test_a_completion_streams(server):
    body = {
        "model": "demo",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 12,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }

    answer = server.call("POST", "/v1/chat/completions", json.dumps(body).encode(), key="key-a")
    events = [line[6:] for line in answer.read().decode().splitlines() if line.startswith("data: ")]

    assert answer.status == 200
    assert events.pop() == "[DONE]"
    assert json.loads(events[-1])["usage"]["completion_tokens"] == 12
    assert len(events) > 3


def test_metrics_are_what_the_answers_said(server):
    """extend + cached is the prompt, output the completion; the second time the prefix is cached."""
    kinds = ("extend_tokens_total", "cached_tokens_total", "output_tokens_total")
    before = [server.counted("bob", kind) for kind in kinds]
    prompt = cached = output = 0
    for _ in range(2):
        status, answer = server.complete(STORY, key="key-b", max_tokens=5, n=2)
        assert status == 200
        usage = answer["usage"]
        prompt += usage["prompt_tokens"]
        cached = (usage["prompt_tokens_details"] or {}).get("cached_tokens", 0)
        output += usage["completion_tokens"]

    def counted() -> list[float]:
        now = [server.counted("bob", kind) for kind in kinds]
        return [after - was for after, was in zip(now, before, strict=True)]

    assert soon(lambda: counted()[2] == output == 20), counted()
    extend, hits, _ = counted()
    assert cached > 0
    assert hits >= cached
    # Each of the two samples has the prompt; the front end reports it once an answer.
    assert extend + hits == 2 * prompt
    assert server.counted("bob", "service_tokens_total") >= extend + 2 * output
    assert server.counted("bob", "waiting_requests") == 0
    assert server.counted("bob", "deficit_tokens") <= 512


def test_identity_cannot_be_spoofed(server):
    """By body, by a duplicated or escaped key, or by a path that reads it elsewhere."""
    bodies = [
        b'{"model":"demo","prompt":"x","max_tokens":1,"vllm_xargs":{"fair_client":"mallory"}}',
        (
            rb'{"model":"demo","prompt":"x","max_tokens":1,"vllm_xargs":{},'
            rb'"vllm_x\u0061rgs":{"fair_client":"mallory"}}'
        ),
    ]
    before = server.counted("bob", "output_tokens_total")
    for body in bodies:
        answer = server.call("POST", "/v1/completions", body, key="key-b")
        assert answer.status == 200, answer.read()
        answer.read()
    server.complete("x", key="key-b", max_tokens=1)
    assert soon(lambda: server.counted("bob", "output_tokens_total") >= before + len(bodies) + 1)
    assert server.clients() <= {"alice", "bob"}


@pytest.mark.parametrize("key", [None, "key-c"])
def test_without_a_key_nothing_is_served(server, key):
    status, answer = server.complete("x", key=key, max_tokens=1)
    assert status == 401
    assert answer["error"]["code"] == "invalid_api_key"
    assert server.call("GET", "/health").status == 200


def test_a_caller_who_leaves_is_aborted_and_charged_for_what_was_made(server):
    body = {
        "model": "demo",
        "prompt": "long",
        "max_tokens": 1900,
        "ignore_eos": True,
        "stream": True,
    }
    before = server.counted("alice", "output_tokens_total")
    answer = server.call("POST", "/v1/completions", json.dumps(body).encode(), key="key-a")
    answer.read(200)

    answer.close()

    def is_idle() -> bool:
        lines = server.metrics()
        counts = [line.split()[-1] for line in lines if line.startswith("vllm:num_requests_runn")]
        return counts == ["0.0"]

    assert soon(is_idle)
    made = server.counted("alice", "output_tokens_total") - before
    assert 0 < made < 1900


def test_a_request_that_can_never_fit_is_refused_and_blocks_no_other(server):
    status, answer = server.complete(STORY * 200, key="key-a", max_tokens=5)
    assert status == 400
    assert "2048" in answer["error"]["message"]
    assert server.complete("x", key="key-b", max_tokens=1)[0] == 200


def test_a_wrong_setting_stops_the_engine_with_one_clear_line(tmp_path):
    with running(tmp_path, scheduler="dlmp") as server:
        status = server.process.wait(START_TIMEOUT_S)

    said = [line for line in server.log.splitlines() if "fairhit:" in line]
    expected = "fairhit: additional_config.fairhit.scheduler: expected one of"
    assert status != 0
    assert len(said) == 1
    assert expected in said[0]
    assert "'dlmp'" in said[0]
