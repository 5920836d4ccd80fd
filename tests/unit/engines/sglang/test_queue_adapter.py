"""The order of admission while SGLang iterates over its list, with a stand-in for SGLang's loop."""

from types import SimpleNamespace

from tests.unit.engines.sglang.sglang_loop import Engine, Req, clients

from fairhit.engines.sglang.queue_adapter import MAX_BLOCKED_PER_PASS
from fairhit.engines.sglang.waiting_queue import SglangWaitingQueue


def test_each_is_charged_before_the_next_is_chosen():
    """
    A pass admits six requests, of five tokens each. A list sorted beforehand would have all of a's first;
    here a's quantum is spent after two, and b has its turn in the same batch.
    """
    engine = Engine(quantum=10)
    for number in range(4):
        engine.send("a", 1, 2, 3, 4, 10 + number)
    for number in range(2):
        engine.send("b", 5, 6, 7, 8, 20 + number)

    assert clients(engine.run_pass()) == "aabbaa"
    assert (engine.credit("a"), engine.credit("b")) == (0, 10)  # the second refill was for both


def test_the_longest_match_is_first_even_if_it_came_into_the_cache_while_all_waited():
    engine = Engine(quantum=100)
    engine.send("a", *range(10))
    engine.send("b", *range(50, 60))
    assert engine.run_pass(room=0) == []
    engine.cache.put(range(50, 58))

    assert clients(engine.run_pass()) == "ba"


def test_nothing_is_charged_or_refilled_for_who_did_not_fit():
    """SGLang sorts at every step, for hours if need be: a refill each time would make idle clients rich."""
    engine = Engine(quantum=10)
    engine.send("a", *range(8))
    before = engine.fair.refill_rounds

    for _ in range(50):
        assert engine.run_pass(room=4) == []

    assert engine.credit("a") == 10  # one quantum, as the paper gives it
    assert engine.fair.refill_rounds == before + 1


def test_without_free_capacity_no_request_is_chosen_and_nothing_refilled():
    engine = Engine(quantum=10)
    engine.send("a", *range(8))

    assert engine.run_pass(room=0) == []

    assert engine.fair.refill_rounds == 0


def test_what_sglang_skips_is_blocked_for_that_pass_only():
    """A LoRA adapter without a slot: its requests wait, the others run, and in the next pass it counts."""
    engine = Engine(quantum=100)
    engine.send("a", 1, 2)
    engine.send("b", 3, 4)

    assert clients(engine.run_pass(skip=lambda req: req.client == "a")) == "b"
    assert clients(engine.run_pass()) == "a"


def test_a_pass_does_not_skip_through_all_that_waits():
    engine = Engine(quantum=1000)
    for number in range(MAX_BLOCKED_PER_PASS + 10):
        engine.send("a", number)
    asked: list[Req] = []

    engine.run_pass(skip=lambda req: asked.append(req) is None)

    assert len(asked) == MAX_BLOCKED_PER_PASS
    assert engine.adapter.truncated_passes == 1
    assert len(engine.run_pass()) == MAX_BLOCKED_PER_PASS + 10


def test_a_prefix_that_is_being_computed_is_waited_for():
    """SGLang's lpm puts such requests last; here they are held until the prefix is in the tree."""
    engine = Engine(quantum=1000, room=1000)
    shared = list(range(40))
    for number in range(3):
        engine.send("a", *shared, 100 + number)

    first = engine.run_pass()
    assert len(first) == 1
    engine.through(first)
    second = engine.run_pass()

    assert [req.prefix_len for req in second] == [40, 40]


def test_a_prefix_of_which_a_chunk_is_computed_is_waited_for_until_the_last_one_is():
    """Else what follows would compute the rest again, beside it."""
    engine = Engine(quantum=1000, room=1000)
    shared = list(range(80))
    first = engine.send("a", *shared, 100)
    engine.run_pass()
    engine.send("b", *shared, 101)
    engine.cache.put(shared[:40])

    first.extend_end = 40
    engine.adapter.on_output([first])  # no output yet
    assert engine.run_pass() == []
    engine.through([first])

    assert [req.prefix_len for req in engine.run_pass()] == [80]


def test_followers_wait_for_a_bounded_number_of_passes():
    """A prefill that never ends, in chunks or on another rank, keeps no request from running for ever."""
    engine = Engine(quantum=1000, room=1000)
    for number in range(2):
        engine.send("a", *range(40), 100 + number)
    engine.run_pass()

    passes = [len(engine.run_pass()) for _ in range(12)]

    assert sum(passes) == 1
    assert passes.index(1) <= 8


def test_a_retracted_request_comes_back_first_and_pays_nothing_twice():
    engine = Engine(quantum=10)
    first = engine.send("a", 1, 2, 3, 4)
    engine.run_pass()
    engine.through([first])
    paid = engine.credit("a")
    engine.send("b", 5, 6)
    engine.queue.append(first)  # as SGLang retracts it

    assert clients(engine.run_pass()) == "ab"
    assert engine.credit("a") == paid
    assert engine.fair.recomputed_len >= 1


def test_outputs_are_charged_once_though_a_retraction_drops_them():
    engine = Engine(quantum=100)
    req = engine.send("a", 1, 2, 3)
    engine.run_pass()
    engine.through([req])
    engine.through([req])
    after_two = engine.credit("a")
    req.output_ids.clear()
    engine.queue.append(req)
    engine.run_pass()

    engine.through([req])
    assert engine.credit("a") == after_two
    engine.through([req])
    engine.through([req])
    assert engine.credit("a") == after_two - 2


def test_who_ends_is_forgotten_and_who_is_aborted_too():
    """Wherever they are: in the queue, popped from it, missing from a new list, or running."""
    engine = Engine(quantum=100)
    done, popped, missing, running, stays = (engine.send(name, 1, 2) for name in "abcde")
    engine.run_pass(room=4)  # admits two, of which done and popped were the oldest
    assert engine.adapter.live == 5
    engine.through([done])
    engine.end(done)
    assert engine.adapter.live == 4

    engine.abort(popped)
    assert engine.queue.pop(engine.queue.index(running)) is running
    engine.queue = SglangWaitingQueue(
        [req for req in engine.queue if req is not missing], engine.adapter
    )

    assert engine.adapter.live == 1
    assert engine.run_pass() == [stays]


def test_a_list_that_was_changed_behind_our_back_is_believed():
    """Else a request that SGLang has dropped would be proposed to it, and run for no caller."""
    engine = Engine(quantum=100)
    gone, stays = engine.send("a", 1), engine.send("b", 2)
    list.remove(engine.queue, gone)

    assert engine.run_pass() == [stays]
    assert engine.adapter.live == 1


def test_who_is_aborted_in_mid_chunk_pays_for_the_chunks_it_had():
    """A prompt of twelve pages in three chunks, hung up on after the first: two thirds come back."""
    engine = Engine(quantum=100)
    engine.cache.put(range(4))
    req = engine.send("a", *range(16))
    engine.run_pass()
    assert engine.credit("a") == 100 - 12

    req.extend_end = 8
    engine.adapter.remove(req)

    assert engine.credit("a") == 100 - 4
    assert engine.fair.service("a").extend_len == 4


def in_chunks(engine: Engine, end: int) -> Req:
    """A prompt of sixteen tokens, the first four cached, of which all is paid and `end` are computed."""
    engine.cache.put(range(4))
    req = engine.send("a", *range(16))
    engine.run_pass()
    assert engine.credit("a") == 100 - 12
    req.extend_end = end
    engine.adapter.on_output([req])  # a chunk is through, and no output
    return req


def retract(engine: Engine, req: Req) -> None:
    """As SGLang does: what was computed of it is dropped."""
    req.extend_end = None
    engine.batch.remove(req)
    engine.queue.append(req)


def test_who_has_emitted_gets_nothing_back_though_it_is_computed_again_in_chunks():
    """The whole prompt was computed once, so a retraction afterwards refunds nothing."""
    engine = Engine(quantum=100)
    engine.cache.put(range(4))
    req = engine.send("a", *range(16))
    engine.through(engine.run_pass())
    retract(engine, req)
    assert engine.run_pass() == [req]
    req.extend_end = 8
    before = engine.credit("a")

    engine.adapter.remove(req)

    assert engine.credit("a") == before
    assert engine.fair.service("a").extend_len == 12


def test_who_is_retracted_in_mid_chunk_and_hung_up_on_pays_for_the_chunks_it_had():
    """While it waits, and while the first chunk of them is computed again."""
    for comes_back in (False, True):
        engine = Engine(quantum=100)
        req = in_chunks(engine, 12)
        retract(engine, req)
        if comes_back:
            assert engine.run_pass() == [req]
            req.extend_end = 6

        engine.adapter.remove(req)

        assert engine.credit("a") == 100 - 8
        assert engine.adapter.live == 0


def test_only_the_walk_that_admits_is_in_our_order():
    """Metrics and aborts iterate over the list as well; that decides nothing and blocks no request."""
    engine = Engine(quantum=100)
    reqs = [engine.send(name, *range(3)) for name in "abc"]
    engine.cache.put(range(3))

    assert list(engine.queue) == reqs
    assert [req for _, req in enumerate(engine.queue)] == reqs
    assert clients(engine.run_pass()) == "abc"


def test_the_victim_is_the_newest_of_the_client_with_the_least_credit():
    engine = Engine(quantum=10)
    poor = [engine.send("a", *range(10 * number, 10 * number + 9)) for number in range(2)]
    rich = engine.send("b", 100)
    running = engine.run_pass()
    assert set(running) == {*poor, rich}
    for _ in range(4):  # who was admitted a moment ago may be retracted, who came back may not
        engine.adapter.begin_pass(engine.queue)

    assert engine.adapter.victims(running, 1) == [running[[*running].index(poor[1])]]


def test_a_prompt_emptied_under_those_who_wait_is_matched_again():
    engine = Engine(quantum=100)
    engine.cache.put(range(50, 58))
    engine.send("a", *range(8))
    engine.send("b", *range(50, 58))
    engine.run_pass(room=0)
    engine.cache.evict(8)

    engine.adapter.rematch()

    assert clients(engine.run_pass()) == "ab"


def test_what_was_speculated_behind_the_end_is_not_charged():
    """A step emitted five tokens, of which the second ended the answer: later tokens are not charged."""
    engine = Engine(quantum=100)
    req = engine.send("a", 1, 2, 3)
    engine.run_pass()
    before = engine.credit("a")

    req.output_ids += [0] * 5
    req.finished_len, req.is_over = 2, True
    engine.adapter.on_output([req])

    assert before - engine.credit("a") == 2 * 2


def test_each_beam_is_charged():
    """SGLang computes a row for each, and shows the first."""
    engine = Engine(quantum=100)
    req = engine.send("a", 1, 2, 3)
    engine.run_pass()
    req.beam_group = SimpleNamespace(beam_width=4)
    before = engine.credit("a")

    for _ in range(3):
        req.output_ids.append(0)
        engine.adapter.on_output([req])

    assert before - engine.credit("a") == 2 * 4 * 3
