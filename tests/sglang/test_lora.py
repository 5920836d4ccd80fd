"""Three LoRA adapters on a real SGLang that computes one at a time: whose turn it is, and who pays.

On a CPU that takes two things: `--lora-backend torch_native`, and memory that is not pinned (`unpinned`).
What is asserted is who ended before whom and what was charged, never how many seconds it took.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

from fairlead.engines.demo_adapters import make_adapter
from tests.sglang.server import Answer, Server, running

pytestmark = pytest.mark.e2e

ADAPTERS = ("a", "b", "c")
# To SGLang the model without an adapter is one more that takes a slot.
MODELS = ("demo", *(f"demo:{name}" for name in ADAPTERS))
TURN = 200  # tokens of service; one request of the flood takes some 50
FLOOD = 50
STORY = "The quick brown fox jumps over the lazy dog."


class Ended(NamedTuple):
    model: str
    answer: Answer


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lora")
    paths = [f"{name}={make_adapter(folder, name)}" for name in ADAPTERS]
    flags = (
        "--enable-lora", "--lora-backend", "torch_native", "--max-loras-per-batch", "1",
        "--lora-paths", *paths,
    )  # fmt: skip
    environment = {
        "PYTHONPATH": str(Path(__file__).parent / "unpinned"),
        "FAIRLEAD_QUANTUM": "200", "FAIRLEAD_LORA_CLIENTS": "1", "FAIRLEAD_ADAPTER_TURN": str(TURN),
    }  # fmt: skip
    with running(folder, "dlpm", *flags, environment=environment) as made:
        yield made
        assert "Traceback" not in made.log.partition("fired up")[2], made.log[-4000:]


def asked(server: Server, models: Iterable[str], done: list[Ended]) -> list[threading.Thread]:
    """One request for each, all under way at once; `done` is in the order in which they end."""

    def ask(number: int, model: str) -> None:
        answer = server.complete(f"{number} {STORY}", model=model, max_tokens=12 + number % 5)
        done.append(Ended(model, answer))

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
    """How many ended before the model's first."""
    return [each.model for each in done].index(model)


def turns(server: Server) -> float:
    return sum(server.counters("fairlead_adapter_turns_total").values())


def test_each_adapter_is_a_client_and_has_a_cache_of_its_own(server):
    """What they answered is what they are charged for."""
    clients = ("anonymous", *ADAPTERS)
    kinds = ("fairlead_extend_tokens_total", "fairlead_output_tokens_total")
    before = [server.counters(kind) for kind in kinds]

    answers = [server.complete(STORY, model=model, max_tokens=9) for model in MODELS]

    def rises(client: str) -> list[float]:
        return [
            server.counters(kind).get(client, 0) - was.get(client, 0)
            for kind, was in zip(kinds, before, strict=True)
        ]

    until(lambda: rises("c")[1] == 9)
    for client, answer in zip(clients, answers, strict=True):
        assert answer.cached == 0
        assert rises(client) == [answer.prompt, 9]


def test_a_flood_on_the_only_slot_lets_another_adapter_and_the_model_in(server):
    """Without turns the others' first would come after all of the flood."""
    done: list[Ended] = []
    before = turns(server)
    # So long that a busy machine, which delays the others, does not delay them past its half.
    flood = asked(server, ["demo:a"] * (3 * FLOOD), done)
    until(lambda: done)

    others = asked(server, ["demo:b", "demo"], done)
    for thread in [*flood, *others]:
        thread.join()

    assert len(done) == 3 * FLOOD + 2
    assert place(done, "demo:b") < len(done) / 2
    assert place(done, "demo") < len(done) / 2
    server.complete("flush", max_tokens=1)
    assert turns(server) > before


def test_two_floods_get_alike_while_both_last(server):
    server.forget()  # one of them would pay less
    done: list[Ended] = []
    for thread in asked(server, ["demo:a", "demo:b"] * FLOOD, done):
        thread.join()

    received, counts = Counter(), Counter()
    for model, answer in done:
        received[model] += answer.prompt - answer.cached + 2 * answer.outputs
        counts[model] += 1
        if counts[model] == FLOOD:
            break
    # None is ever ahead by more than a turn and what drains.
    assert 1 / 2 < received["demo:b"] / received["demo:a"] < 2, received


def test_the_bare_name_that_sglang_lists_is_the_model_without_the_adapter(server):
    """What our how-to warns of; `lora_path` beside it is what it says instead."""
    name = "fairlead_output_tokens_total"
    before = server.counters(name)

    server.complete("bare", model="a", max_tokens=3)
    server.complete("both", model="a", max_tokens=4, lora_path="a")

    def rise(client: str) -> float:
        return server.counters(name).get(client, 0) - before.get(client, 0)

    until(lambda: rise("a") == 4)
    assert rise("anonymous") == 3


def test_with_too_few_slots_nobody_is_frozen(server):
    """Three adapters and the model at once, one slot, four seats: all are answered."""
    done: list[Ended] = []

    for thread in asked(server, [*MODELS] * 10, done):
        thread.join()

    assert sorted(each.model for each in done) == sorted([*MODELS] * 10)
