"""A real server with `--max-queued-requests`: who floods it is refused, and nobody else."""

import contextlib
import json
import threading

import pytest

from tests.sglang.server import Server, running, until

pytestmark = pytest.mark.e2e

LIMIT, CALLERS = 8, 24
# What the other client asks for, one after the other.
TURNS = 12
OUTPUTS = 16


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    flags = ("--max-queued-requests", str(LIMIT), "--grammar-backend", "xgrammar")
    with running(tmp_path_factory.mktemp("full"), "dlpm", *flags) as made:
        yield made
        assert "Traceback" not in made.log.partition("fired up")[2], made.log[-4000:]


@contextlib.contextmanager
def flood(server: Server, client: str):
    """Callers who ask again at once, refused or not; yields the statuses that they got."""
    statuses: list[int] = []
    is_over = threading.Event()

    def call(number: int) -> None:
        while not is_over.is_set():
            statuses.append(status(server, client, f"flood {number}")[0])

    threads = [threading.Thread(target=call, args=(number,)) for number in range(CALLERS)]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def status(server: Server, client: str, prompt: str, **more: object) -> tuple[int, str]:
    body = {"model": "demo", "prompt": prompt, "max_tokens": OUTPUTS, "ignore_eos": True, **more}
    response = server.post("/v1/completions", body, x_smg_routing_key=client)
    return response.status, response.read().decode()


def test_a_flood_that_asks_again_shuts_nobody_out(server):
    """SGLang by itself refuses whoever arrives next, which is then nearly always the other client."""
    with flood(server, "heavy") as statuses:
        until(lambda: statuses.count(503) >= LIMIT)
        light = [status(server, "light", f"light {turn}")[0] for turn in range(TURNS)]
        until(lambda: 200 in statuses)

    assert light == [200] * TURNS
    assert {*statuses} == {200, 503}


def test_who_is_dropped_hears_what_sglang_says_of_a_full_queue(server):
    heard: list[tuple[int, str]] = []
    threads = [
        threading.Thread(target=lambda: heard.append(status(server, "many", "x", max_tokens=200)))
        for _ in range(2 * CALLERS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    refused = [said for code, said in heard if code == 503]
    assert refused and len(refused) < len(heard)
    assert {json.loads(said)["message"] for said in refused} == {"The request queue is full."}


@pytest.mark.parametrize(
    "more",
    [
        {"json_schema": '{"type": "no such type"}'},
        {"regex": "("},
        {"prompt": [5] * 9000},  # more than its memory
    ],
)
def test_what_sglang_refuses_is_charged_nothing(server, more):
    """SGLang computes a refused request as one token, to answer it with an error."""
    server.settle()
    before = charges(server)

    code, said = status(server, "refused", **{"prompt": "x", **more})

    server.settle()
    assert code == 400, said
    assert charges(server) == before


def charges(server: Server) -> list[float]:
    names = ("fairhit_extend_tokens_total", "fairhit_output_tokens_total")
    return [server.counters(name).get("refused", 0.0) for name in names]
