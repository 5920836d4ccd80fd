"""Real runs: SGLang's own HTTP server, tokenizer, scheduler, cache and model, with DLPM deciding.

What is asserted is who ended before whom and what was charged, never how many seconds it took.
"""

import http.client
import json
import random

import pytest

from fairhit.local.engine_process import HOST
from tests.sglang.flood import CALLERS, WAITING, crowd, flood, words
from tests.sglang.server import Server, running, until

pytestmark = pytest.mark.e2e

QUANTUM = 500
# A prompt above it is computed in several chunks, which SGLang admits by another way than the first.
CHUNK = 256
MEMORY = 3000  # tokens of KV
EXTEND, OUTPUT = "fairhit_extend_tokens_total", "fairhit_output_tokens_total"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dlpm")
    # Little memory, of which little is kept free for outputs, so that it runs out.
    flags = (
        "--chunked-prefill-size", str(CHUNK),
        "--max-total-tokens", str(MEMORY), "--schedule-conservativeness", "0.1",
    )  # fmt: skip
    with running(folder, "dlpm", *flags, environment={"FAIRHIT_QUANTUM": str(QUANTUM)}) as made:
        assert (
            "fairhit: policy dlpm, cost linear:1,2, quantum 500, audit True; matching is exact"
            in made.log
        )
        yield made
        assert "Traceback" not in made.log.partition("fired up")[2], made.log[-4000:]


class Counted:
    """Counters of the clients' charges since this object was made."""

    def __init__(self, server: Server, *names: str) -> None:
        self._server, self._names = server, names
        server.settle()
        self._before = [server.counters(name) for name in names]

    def rises(self, client: str) -> list[float]:
        """Return all charges so far."""
        self._server.settle()
        now = [self._server.counters(name) for name in self._names]
        return [
            each.get(client, 0.0) - was.get(client, 0.0)
            for each, was in zip(now, self._before, strict=True)
        ]


def test_who_asks_little_is_answered_in_the_midst_of_a_flood(server):
    """88 requests of one client wait; with FCFS or LPM the other's would come after all of them."""
    server.forget()

    many, _, passed = flood(server)

    assert max(passed) < CALLERS / 2, passed
    # Nor is the prefix lost for that: the flood computes it once.
    assert sum(answer.cached for answer in many) > 0.9 * sum(answer.prompt for answer in many)


def test_more_than_128_waiting_are_still_in_order(server):
    """Above 128 SGLang's lpm gives up and takes them as they stand; ours costs the same with any number."""
    server.forget()

    passed = flood(server, callers=160, waiting=129, turns=1).passed

    assert passed[0] < 160 / 2


def test_each_token_is_charged_once(server):
    """In chunks or whole, cached or not: what /metrics says is what the answers' usage says."""
    server.forget()
    prompt = words_of(5, 400)  # some 1,800 tokens: seven chunks
    counted = Counted(server, EXTEND, "fairhit_cached_tokens_total", OUTPUT)

    answers = [
        server.complete(prompt, client="payer", max_tokens=7),
        server.complete(prompt + " more", client="payer", max_tokens=9),
    ]
    with crowd(
        lambda number: server.complete((prompt, "else")[number], client="payer", max_tokens=3),
        callers=2,
        most=2,
    ) as both:
        pass
    answers += both

    assert answers[0].prompt > 3 * CHUNK and answers[1].cached > 3 * CHUNK
    assert counted.rises("payer") == [
        sum(answer.prompt - answer.cached for answer in answers),
        sum(answer.cached for answer in answers),
        sum(answer.outputs for answer in answers),
    ]


def test_a_client_is_named_by_header_or_body(server):
    counted = Counted(server, OUTPUT)

    server.complete("one", max_tokens=2, custom_params={"fair_client": "by-params"})
    server.complete("two", client="by-header", max_tokens=3, user="nobody")
    body = {"text": "three", "routing_key": "by-key"}
    server.post("/generate", {**body, "sampling_params": {"max_new_tokens": 4}}).read()
    server.complete("four", max_tokens=5)

    for client, tokens in {"by-params": 2, "by-header": 3, "by-key": 4, "anonymous": 5}.items():
        assert counted.rises(client) == [tokens], client
    assert "nobody" not in server.counters(OUTPUT)


def test_who_hangs_up_is_forgotten(server):
    """Running and waiting requests of a caller that is gone: nobody waits for them any more."""
    connections = [http.client.HTTPConnection(HOST, server.port, timeout=60) for _ in range(12)]
    for number, connection in enumerate(connections):
        body = streamed(f"{number}", max_tokens=1000, ignore_eos=True)
        headers = {"Content-Type": "application/json", "x-smg-routing-key": "gone"}
        connection.request("POST", "/v1/completions", json.dumps(body), headers)

    def waiting() -> float:
        return server.counters(WAITING).get("gone", 0.0)

    until(waiting)
    for connection in connections:
        connection.close()

    def is_forgotten() -> bool:
        server.complete("ready?", client="next", max_tokens=1)  # and the number is written
        return waiting() == 0

    until(is_forgotten)
    server.settle()
    assert server.counters(OUTPUT)["gone"] < 12 * 1000


def test_when_memory_runs_out_all_are_answered_and_pay_once(server):
    """
    Four that emit 1,000 tokens each, of which no three fit in 3,000: SGLang retracts whom we say, and takes
    it back when there is room. What it computes again for that is the system's cost, not the client's.
    (In one batch it would reserve all of their outputs; so each comes when the one before it has begun.
    And SGLang believes that most will end early, unless `ignore_eos` says that they will not.)
    """
    server.forget()
    counted = Counted(server, EXTEND, OUTPUT)
    recomputed = sum(server.counters("fairhit_recomputed_tokens_total").values())
    clients = ("a", "b", "c", "d")

    responses = []
    for client in clients:
        prompt = f"{client} {words_of(ord(client), 20)}"  # nobody's begins as another's does
        body = streamed(prompt, max_tokens=1000, ignore_eos=False)
        responses.append(server.post("/v1/completions", body, x_smg_routing_key=client))
        assert responses[-1].readline().startswith(b"data: ")
    usages = [usage_of(response) for response in responses]

    assert [usage["completion_tokens"] for usage in usages] == [1000] * 4
    for client, usage in zip(clients, usages, strict=True):
        assert counted.rises(client) == [usage["prompt_tokens"], usage["completion_tokens"]]
    assert sum(server.counters("fairhit_recomputed_tokens_total").values()) > recomputed


def streamed(prompt: str, *, max_tokens: int, ignore_eos: bool) -> dict[str, object]:
    """Fields of a request for a streamed answer, whose last chunk has the usage."""
    return {
        "model": "demo", "prompt": prompt, "max_tokens": max_tokens, "ignore_eos": ignore_eos,
        "temperature": 0, "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip


def usage_of(response: http.client.HTTPResponse) -> dict[str, int]:
    """Return the last chunks of an answer."""
    pieces = [line.removeprefix(b"data: ") for line in response.read().splitlines() if line]
    assert pieces[-1] == b"[DONE]", pieces[-1]
    usage: dict[str, int] = json.loads(pieces[-2])["usage"]
    return usage


def words_of(seed: int, count: int) -> str:
    """A prompt of its own for each seed."""
    return words(random.Random(seed), count)
