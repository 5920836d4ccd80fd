"""Three LoRA adapters on a real vLLM that computes one at a time: whose turn it is, and who pays.

What is asserted is who ended before whom and what was charged, never how many seconds it took.
"""

import json
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest

pytest.importorskip("vllm")
pytestmark = [pytest.mark.e2e, pytest.mark.vllm]

from fairhit.gateway.settings import GatewaySettings  # noqa: E402
from fairhit.local.demo_model import RANK, make_adapter  # noqa: E402
from fairhit.local.engine_process import HOST  # noqa: E402
from tests.e2e.engine.server import Server, running  # noqa: E402
from tests.e2e.paths.conftest import post, serving  # noqa: E402

ADAPTERS = ("a", "b", "c")
TURN = 200  # tokens of service; one request of the flood takes some 50
FLOOD = 50
STORY = "The quick brown fox jumps over the lazy dog."


class Ended(NamedTuple):
    model: str
    usage: Any


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lora")
    modules = [f"{name}={make_adapter(folder, name)}" for name in ADAPTERS]
    flags = (
        "--enable-lora", "--max-loras", "1", "--max-cpu-loras", "3", "--max-lora-rank", str(RANK),
        "--lora-modules", *modules,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "1")
        with running(folder, flags=flags, quantum=200, adapter_turn=TURN) as one:
            one.wait_until_it_answers()
            yield one


def asked(server: Server, models: Iterable[str], done: list[Ended]) -> list[threading.Thread]:
    """Send one request for each adapter at once; `done` lists them in the order in which they end."""

    def ask(number: int, model: str) -> None:
        status, answer = server.complete(
            f"{number} {STORY}", key=None, model=model, max_tokens=12 + number % 5
        )
        assert status == 200, answer
        done.append(Ended(model, answer["usage"]))

    threads = [threading.Thread(target=ask, args=each) for each in enumerate(models)]
    for thread in threads:
        thread.start()
    return threads


def until(true: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def place(done: list[Ended], model: str) -> int:
    """Return how many requests ended before the model's first."""
    return [each.model for each in done].index(model)


def rotations(server: Server) -> float:
    lines = server.call("GET", "/metrics").read().decode().splitlines()
    return sum(
        float(line.split()[-1])
        for line in lines
        if line.startswith("fairhit_lora_slot_rotations_total")
    )


def test_each_adapter_is_a_model_of_its_own_and_a_client(server):
    """Asked the same, they answer otherwise; and what they answered is what they are charged for."""
    kinds = ("extend_tokens_total", "cached_tokens_total", "output_tokens_total")
    clients = (*ADAPTERS, "anonymous")
    before = {client: [server.counted(client, kind) for kind in kinds] for client in clients}
    said, usage = {}, {}
    for model, client in zip((*ADAPTERS, "demo"), clients, strict=True):
        _, answer = server.complete(STORY, key=None, model=model, max_tokens=9, temperature=0)
        said[model] = answer["choices"][0]["text"]
        usage[client] = answer["usage"]

    assert len(set(said.values())) == 4, said
    until(lambda: server.counted("anonymous", kinds[2]) == before["anonymous"][2] + 9)
    for client in clients:
        extend, cached, output = (
            server.counted(client, kind) - was
            for kind, was in zip(kinds, before[client], strict=True)
        )
        # Each has a cache of its own: the same tokens mean something else to another adapter.
        assert cached == 0 and extend == usage[client]["prompt_tokens"] and output == 9


def test_a_flood_on_the_only_slot_lets_another_adapter_and_the_model_in(server):
    """Without rotation the other's first would come after all of the flood."""
    done: list[Ended] = []
    before = rotations(server)
    flood = asked(server, ["a"] * FLOOD, done)
    until(lambda: done)

    others = asked(server, ["b", "demo"], done)
    for thread in [*flood, *others]:
        thread.join()

    assert len(done) == FLOOD + 2
    assert place(done, "b") < FLOOD / 2
    assert place(done, "demo") < FLOOD / 2
    assert rotations(server) > before


def test_two_floods_get_alike_while_both_last(server):
    done: list[Ended] = []
    first = asked(server, ["a"] * FLOOD, done)
    until(lambda: done)
    second = asked(server, ["b"] * FLOOD, done)
    for thread in [*first, *second]:
        thread.join()

    counts = {"a": 0, "b": 0}
    for each in done:
        counts[each.model] += 1
        if max(counts.values()) == FLOOD:
            break
    # b came when some of a had ended; from then on none is ahead by more than a turn and what drains.
    assert min(counts.values()) > FLOOD / 2, counts


def test_with_too_few_slots_no_request_is_frozen(server):
    """Three adapters and the model at once, one slot, four running requests: all are answered."""
    done: list[Ended] = []

    for thread in asked(server, [*ADAPTERS, "demo"] * 10, done):
        thread.join()

    models = [each.model for each in done]
    assert sorted(models) == sorted([*ADAPTERS, "demo"] * 10)
    assert place(done, "demo") < len(done) / 2  # it needs no slot
    # Nor does anybody wait until all of the others have ended.
    assert all(place(done, model) < 30 for model in ADAPTERS), models


def test_the_gateway_sends_an_adapters_requests_to_who_has_it(server):
    """The gateway names no client, as it knows no keys; so the adapter is the client."""
    before = server.counted("b", "output_tokens_total")
    settings = GatewaySettings(port=0, worker_urls=(f"http://{HOST}:{server.port}",))
    body = {"prompt": STORY, "max_tokens": 7, "ignore_eos": True}
    with serving(settings) as gateway:
        answer = post(gateway.port, "/v1/completions", {**body, "model": "b"})
        unknown = post(gateway.port, "/v1/completions", {**body, "model": "d"})

    assert answer.status == 200 and json.loads(answer.body)["model"] == "b"
    assert unknown.status == 404
    until(lambda: server.counted("b", "output_tokens_total") == before + 7)


def test_an_adapter_is_loaded_and_unloaded_behind_the_gateway(server, tmp_path):
    """The gateway probes once an hour, so that it learns from requests only."""
    url = f"http://{HOST}:{server.port}"
    settings = GatewaySettings(port=0, worker_urls=(url,), health_check_interval_secs=3600)
    body = {"prompt": STORY, "max_tokens": 3, "ignore_eos": True, "model": "later"}

    def change(how: str, **fields: str) -> int:
        asked = json.dumps({"lora_name": "later", **fields}).encode()
        return server.call("POST", f"/v1/{how}_lora_adapter", asked).status

    with serving(settings) as gateway:

        def ask() -> int:
            return post(gateway.port, "/v1/completions", body).status

        engine = gateway.dispatcher.engines[url]
        assert ask() == 404
        assert change("load", lora_path=str(make_adapter(tmp_path, "later"))) == 200
        assert ask() == 200
        assert change("unload") == 200
        until(lambda: ask() == 404 and "later" not in engine.models)
        assert {*ADAPTERS, "demo"} == engine.models
        assert ask() == 404
