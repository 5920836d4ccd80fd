"""Records of SGLang's requests: service of clients, admissions, ends, unknown clients."""

from dataclasses import replace

import pytest
from tests.unit.engines.sglang.sglang_loop import Engine, Req, clients

from fairhit.core.ledgers.client_table import OTHER
from fairhit.core.service import Service
from fairhit.engines.sglang.waiting_queue import SglangWaitingQueue


def test_metrics_say_what_each_client_received():
    """Of a prompt whose first four tokens are cached, and two outputs."""
    engine = Engine(quantum=100)
    engine.cache.put(range(4))
    engine.send("a", *range(10))
    engine.send("b", 50, 51)
    batch = engine.run_pass()
    engine.through(batch)
    engine.through(batch)

    assert engine.written == {
        "a": Service(extend_len=6, cached_len=4, output_len=2),
        "b": Service(extend_len=2, cached_len=0, output_len=2),
    }


def test_metrics_say_nothing_of_what_is_computed_again():
    engine = Engine(quantum=100)
    req = engine.send("a", *range(10))
    engine.through(engine.run_pass())
    before = replace(engine.written["a"])
    engine.batch.remove(req)
    engine.queue.append(req)

    engine.run_pass()

    assert engine.written == {"a": before}


def test_who_waits_has_not_been_admitted():
    """So that one which SGLang runs all the same is noticed."""
    engine = Engine(quantum=100)
    req = engine.send("a", 1, 2)
    assert not engine.adapter.is_charged(req)

    engine.run_pass()
    assert engine.adapter.is_charged(req)

    engine.end(req)
    assert not engine.adapter.is_charged(req)


def test_every_request_in_the_list_waits_however_it_came_there():
    engine = Engine(quantum=100)
    engine.send("a", 1)
    list.append(engine.queue, Req("b", [2]))

    assert clients(engine.run_pass()) == "ab"


@pytest.mark.parametrize(
    "comes", [SglangWaitingQueue.append, lambda queue, req: queue.insert(0, req)]
)
@pytest.mark.parametrize(
    "goes",
    [
        SglangWaitingQueue.remove,
        lambda queue, req: queue.pop(queue.index(req)),
        lambda queue, _: queue.clear(),
    ],
)
def test_arrivals_and_departures_between_two_passes_are_known_at_once(comes, goes):
    """By whichever of the ways of a list: what /metrics says of those who wait does not lag behind."""
    engine = Engine(quantum=100)
    gone = engine.send("a", 1)

    goes(engine.queue, gone)
    assert len(engine.adapter) == 0
    comes(engine.queue, come := Req("b", [2]))
    assert len(engine.adapter) == 1

    assert engine.run_pass() == [come]


def test_a_pass_that_was_begun_anew_expects_no_walk():
    """SGLang made its adder and did not walk; what iterates next over the list decides nothing."""
    engine = Engine(quantum=100)
    reqs = [engine.send(name, *range(3)) for name in "ba"]
    engine.cache.put(range(3))
    engine.adapter.expect_iteration(engine)

    engine.adapter.begin_pass(engine.queue)

    assert list(engine.queue) == reqs
    assert engine.adapter.is_iteration_expected is False


def test_who_is_aborted_while_it_is_held_is_gone():
    engine = Engine(quantum=100)
    held, stays = engine.send("a", 1), engine.send("b", 2)
    engine.run_pass(skip=lambda _: True)

    engine.queue.remove(held)

    assert engine.run_pass() == [stays]
    assert engine.adapter.live == 1


@pytest.mark.parametrize(("is_held", "known"), [(False, "a"), (True, "b")])
def test_clients_beyond_the_table_share_a_place(is_held, known):
    """An engine must not end for that; nor where a client is forgotten while its request is held."""
    engine = Engine(quantum=100, max_clients=1)
    engine.send("a", 1)
    if is_held:
        engine.run_pass(skip=lambda _: True)
    engine.send("b", 2)

    assert clients(engine.run_pass()) == "ab"
    assert set(engine.written) == {known, OTHER}


def test_what_sglang_refuses_is_charged_nothing():
    """A schema it cannot compile, a prompt too long: SGLang computes one token of it, and answers 400."""
    engine = Engine(quantum=10)
    refused = engine.send("a", 0, to_finish="no grammar")
    engine.send("b", 1, 2)
    credit = engine.credit("a")

    batch = engine.run_pass()
    engine.through(batch)
    engine.end(refused)

    assert refused in batch
    assert engine.credit("a") == credit + 10  # the quantum that both were given
    assert engine.adapter.live == 1
    assert engine.written == {"b": Service(extend_len=2, output_len=1)}


def test_what_is_refused_pays_nothing_if_it_is_gone_before_its_prefill_is_through():
    engine = Engine(quantum=10)
    refused = engine.send("a", 0, to_finish="too long")
    engine.run_pass()

    engine.adapter.remove(refused)

    assert engine.credit("a") == 10
    assert engine.adapter.live == 0
