"""Real runs: SGLang's own HTTP server, tokenizer, scheduler, cache and model, with DLPM deciding.

What is asserted is who ended before whom and what was charged, never how many seconds it took.
"""

import http.client
import json
import random
import threading
import time
from collections.abc import Callable
from functools import partial

import pytest

from fairlead.engines.local import HOST
from tests.sglang.flood import flood, words
from tests.sglang.server import Answer, Server, running

pytestmark = pytest.mark.e2e

QUANTUM = 500
# A prompt above it is computed in several chunks, which SGLang admits by another way than the first.
CHUNK = 256
MEMORY = 3000  # tokens of KV


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dlpm")
    # Little memory, of which little is kept free for outputs, so that it runs out.
    flags = (
        "--chunked-prefill-size", str(CHUNK),
        "--max-total-tokens", str(MEMORY), "--schedule-conservativeness", "0.1",
    )  # fmt: skip
    with running(folder, "dlpm", *flags, environment={"FAIRLEAD_QUANTUM": str(QUANTUM)}) as made:
        assert "fairlead: scheduler dlpm, quantum 500; matching is exact" in made.log
        yield made
        assert "Traceback" not in made.log.partition("fired up")[2], made.log[-4000:]


def at_once(*calls: Callable[[], Answer], apart_s: float = 0) -> list[Answer]:
    """Every call in a thread of its own; their answers, as they were ordered."""
    answers: dict[int, Answer] = {}

    def call(number: int) -> None:
        answers[number] = calls[number]()

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
        time.sleep(apart_s)
    for thread in threads:
        thread.join()
    return [answers[number] for number in range(len(calls))]


def rise(server: Server, name: str, before: dict[str, float], client: str) -> float:
    """How much the client's counter has grown, once the scheduler has written what is pending."""
    server.complete("flush", client="somebody", max_tokens=1)
    return server.counters(name).get(client, 0.0) - before.get(client, 0.0)


def test_who_asks_little_is_answered_in_the_midst_of_a_flood(server):
    """48 requests of one client wait; with FCFS or LPM the other's first would come after all of them."""
    server.forget()

    many, few = flood(server)

    ends = sorted(answer.ended_s for answer in many)
    first = min(answer.ended_s for answer in few)
    assert sum(end < first for end in ends) < len(ends) / 2
    # Nor is the prefix lost for that: the flood computes it once.
    assert sum(answer.cached for answer in many) > 0.9 * sum(answer.prompt for answer in many)


def test_more_than_128_waiting_are_still_in_order(server):
    """Above 128 SGLang's lpm gives up and takes them as they stand; ours costs the same with any number."""
    server.forget()

    many, few = flood(server, requests=160, turns=1)

    first = few[0].ended_s
    assert sum(answer.ended_s < first for answer in many) < len(many) / 2


def test_each_token_is_charged_once(server):
    """In chunks or whole, cached or not: what /metrics says is what the answers' usage says."""
    server.forget()
    prompt = words_of(5, 400)  # some 1,800 tokens: seven chunks
    names = ("fairlead_extend_tokens", "fairlead_cached_tokens", "fairlead_output_tokens")
    before = [server.counters(f"{name}_total") for name in names]

    answers = [
        server.complete(prompt, client="payer", max_tokens=7),
        server.complete(prompt + " more", client="payer", max_tokens=9),
        *at_once(
            lambda: server.complete(prompt, client="payer", max_tokens=3),
            lambda: server.complete("else", client="payer", max_tokens=5),
        ),
    ]

    assert answers[0].prompt > 3 * CHUNK and answers[1].cached > 3 * CHUNK
    charged = [
        rise(server, f"{name}_total", was, "payer") for name, was in zip(names, before, strict=True)
    ]
    assert charged == [
        sum(answer.prompt - answer.cached for answer in answers),
        sum(answer.cached for answer in answers),
        sum(answer.outputs for answer in answers),
    ]


def test_a_client_is_named_by_header_or_body(server):
    name = "fairlead_output_tokens_total"
    before = server.counters(name)

    server.complete("one", max_tokens=2, custom_params={"fair_client": "by-params"})
    server.complete("two", client="by-header", max_tokens=3, user="nobody")
    body = {"text": "three", "routing_key": "by-key"}
    server.post("/generate", {**body, "sampling_params": {"max_new_tokens": 4}}).read()
    server.complete("four", max_tokens=5)

    for client, tokens in {"by-params": 2, "by-header": 3, "by-key": 4, "anonymous": 5}.items():
        assert rise(server, name, before, client) == tokens, client
    assert "nobody" not in server.counters(name)


def test_who_hangs_up_is_forgotten(server):
    """Running and waiting requests of a caller that is gone: nobody waits for them any more."""
    body = {"model": "demo", "max_tokens": 1000, "stream": True, "ignore_eos": True}
    headers = {"Content-Type": "application/json", "x-smg-routing-key": "gone"}
    connections = []
    for number in range(12):
        connection = http.client.HTTPConnection(HOST, server.port, timeout=60)
        asked = json.dumps({**body, "prompt": f"{number}"})
        connection.request("POST", "/v1/completions", asked, headers)
        connections.append(connection)
        if number == 0:  # it runs, and the others come while it does
            connection.getresponse()
    for connection in connections:
        connection.close()

    assert server.complete("ready?", client="next", max_tokens=1).outputs == 1
    assert server.counters("fairlead_waiting_requests").get("gone", 0.0) == 0


def test_when_memory_runs_out_all_are_answered_and_pay_once(server):
    """
    Four that emit 800 tokens each do not fit in 3,000: SGLang retracts whom we say, and takes it
    back when there is room. What it computes again for that is the system's cost, not the client's.
    (In one batch it would reserve all of their outputs; so they come one after the other.)
    """
    server.forget()
    names = ("fairlead_extend_tokens_total", "fairlead_output_tokens_total")
    before = [server.counters(name) for name in names]
    recomputed = sum(server.counters("fairlead_recomputed_tokens_total").values())
    clients = ("a", "b", "c", "d")

    answers = at_once(*(partial(emit_much, server, client) for client in clients), apart_s=1)

    assert sum(answer.outputs for answer in answers) > MEMORY
    assert sum(server.counters("fairlead_recomputed_tokens_total").values()) > recomputed
    for client, answer in zip(clients, answers, strict=True):
        extend, output = (rise(server, *each, client) for each in zip(names, before, strict=True))
        assert (extend, output) == (answer.prompt, answer.outputs)


def emit_much(server: Server, client: str) -> Answer:
    """SGLang believes that most will end early, unless `ignore_eos` says that they will not."""
    prompt = f"{client} {words_of(ord(client), 20)}"  # nobody's begins as another's does
    return server.complete(prompt, client=client, max_tokens=800, ignore_eos=False)


def words_of(seed: int, count: int) -> str:
    """A prompt of its own for each seed."""
    return words(random.Random(seed), count)
