"""Three LoRA adapters on a real SGLang that computes one at a time: whose turn it is, and who pays.

On a CPU that takes two things: `--lora-backend torch_native`, and memory that is not pinned (`unpinned`).
What is asserted is who ended before whom and what was charged, never how many seconds it took.
"""

from collections import Counter
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pytest

from fairhit.local.demo_model import make_adapter
from tests.sglang.flood import WAITING, crowd
from tests.sglang.server import Answer, Server, running, until

pytestmark = pytest.mark.e2e

ADAPTERS = ("a", "b", "c")
# To SGLang the model without an adapter is one more that takes a slot.
MODELS = ("demo", *(f"demo:{name}" for name in ADAPTERS))
TURN = 500  # tokens of service; one request of a flood takes some 100
# Of a flood's requests: so many that what computes them is busier than what takes them in, on any machine.
OUTPUTS = 40
CALLERS, FEWER = 24, 10  # of a flood; four of them run
MOST = 160
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
        "FAIRHIT_QUANTUM": "200", "FAIRHIT_LORA_CLIENTS": "1", "FAIRHIT_ADAPTER_TURN": str(TURN),
    }  # fmt: skip
    with running(folder, "dlpm", *flags, environment=environment) as made:
        yield made
        assert "Traceback" not in made.log.partition("fired up")[2], made.log[-4000:]


def ask(server: Server, model: str, number: int) -> Ended:
    prompt = f"{number} {STORY}"
    return Ended(model, server.complete(prompt, model=model, max_tokens=OUTPUTS + number % 5))


def waits(server: Server, adapter: str) -> float:
    """Return how many requests for an adapter wait in the engine."""
    return server.counters(WAITING).get(adapter, 0.0)


def turns(server: Server) -> float:
    server.settle()
    return sum(server.counters("fairhit_lora_slot_rotations_total").values())


def test_each_adapter_is_a_client_and_has_a_cache_of_its_own(server):
    """Clients are charged for what was answered."""
    clients = ("anonymous", *ADAPTERS)
    kinds = ("fairhit_extend_tokens_total", "fairhit_output_tokens_total")
    before = [server.counters(kind) for kind in kinds]

    answers = [server.complete(STORY, model=model, max_tokens=9) for model in MODELS]

    server.settle()
    after = [server.counters(kind) for kind in kinds]
    for client, answer in zip(clients, answers, strict=True):
        assert answer.cached == 0
        rises = [now[client] - was.get(client, 0) for now, was in zip(after, before, strict=True)]
        assert rises == [answer.prompt, 9]


def test_a_flood_on_the_only_slot_lets_another_adapter_and_the_model_in(server):
    """Without turns theirs would come after all of the flood, which ends when both are answered."""
    before = turns(server)

    with crowd(partial(ask, server, "demo:a"), callers=CALLERS, most=MOST) as flood:
        until(lambda: waits(server, "a") >= CALLERS / 2)

        def passed(number: int) -> int:
            """Return how many requests of the flood ended during this one."""
            ended = len(flood)
            ask(server, ("demo:b", "demo")[number], number)
            return len(flood) - ended

        with crowd(passed, callers=2, most=2) as both:
            pass

    assert len(both) == 2 and max(both) < MOST / 4, both
    assert turns(server) > before


def test_two_floods_get_alike_while_both_last(server):
    """An adapter with more than twice as many clients gets no larger share."""
    server.forget()  # one of them would pay less
    with (
        crowd(partial(ask, server, "demo:a"), callers=CALLERS, most=MOST) as many,
        crowd(partial(ask, server, "demo:b"), callers=FEWER, most=MOST) as few,
    ):
        until(lambda: waits(server, "a") and waits(server, "b"))
        before = len(many), len(few)
        until(lambda: len(many) + len(few) >= sum(before) + MOST / 2)
        ended = chain(many[before[0] :], few[before[1] :])

    received = Counter()
    for model, answer in ended:
        received[model] += answer.prompt - answer.cached + 2 * answer.outputs
    # None is ever ahead by more than a turn and what drains.
    assert 1 / 2 < received["demo:b"] / received["demo:a"] < 2, received


def test_the_bare_name_that_sglang_lists_is_the_model_without_the_adapter(server):
    """The mistake that the how-to warns of, and `lora_path`, the remedy there."""
    name = "fairhit_output_tokens_total"
    before = server.counters(name)

    server.complete("bare", model="a", max_tokens=3)
    server.complete("both", model="a", max_tokens=4, lora_path="a")

    server.settle()
    after = server.counters(name)
    rises = {client: after[client] - before.get(client, 0) for client in ("anonymous", "a")}
    assert rises == {"anonymous": 3, "a": 4}


def test_with_too_few_slots_no_request_is_frozen(server):
    """Three adapters and the model at once, one slot, four seats: all are answered."""

    def one(number: int) -> str:
        return ask(server, MODELS[number % len(MODELS)], number).model

    with crowd(one, callers=40, most=40) as answered:
        pass

    assert Counter(answered) == dict.fromkeys(MODELS, 10)
