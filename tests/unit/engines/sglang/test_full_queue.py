"""The request dropped from a full SGLang queue: one of the client with the most waiting requests."""

from tests.unit.engines.sglang.sglang_loop import Engine


def test_a_flood_does_not_shut_out_who_asks_little():
    """
    SGLang refuses the next arrival. Its retries would fill each free place before the other client asks
    again; here the newest of the flood makes room.
    """
    engine = Engine(most_waiting=4)
    flood = [engine.send("heavy", number) for number in range(6)]

    light = engine.send("light", 100)

    assert engine.refused == [flood[4], flood[5], flood[3]]
    assert [*engine.queue] == [*flood[:3], light]
    assert light in engine.run_pass()


def test_no_request_is_dropped_for_a_client_that_would_then_have_as_many_waiting():
    """Or the two would drop each other's in turn, and nothing would be gained."""
    engine = Engine(most_waiting=3)
    flood = [engine.send("a", number) for number in range(3)]

    first, *later = [engine.send("b", 10 + number) for number in range(3)]

    assert engine.refused == [flood[2], *later]
    assert [*engine.queue] == [*flood[:2], first]


def test_a_client_of_twice_the_weight_may_have_twice_as_many_waiting():
    engine = Engine(most_waiting=6, weights={"gold": 2})
    for number in range(6):
        engine.send("silver", number)

    for number in range(6):
        engine.send("gold", 10 + number)

    assert sorted(req.client for req in engine.queue) == ["gold"] * 4 + ["silver"] * 2


def test_one_that_ran_is_dropped_after_those_of_its_client_that_never_did():
    """
    A request is retracted into a full queue, where it is the newest; its caller already has a part of the
    answer.
    """
    engine = Engine(most_waiting=2)
    waiting = [engine.send("a", 1), engine.send("a", 2)]
    ran = waiting.pop()
    assert engine.run_pass(skip=waiting.__contains__) == [ran]
    engine.batch.remove(ran)
    light = engine.send("b", 3)

    engine.enqueue(ran)

    assert engine.refused == waiting
    assert [*engine.queue] == [light, ran]


def test_of_those_that_ran_the_newest_is_dropped():
    engine = Engine(most_waiting=2)
    ran = [engine.send("a", 1), engine.send("a", 2)]
    assert engine.run_pass() == ran
    engine.batch.clear()
    light = engine.send("b", 3)

    for req in ran:
        engine.enqueue(req)

    assert engine.refused == ran[1:]
    assert [*engine.queue] == [light, ran[0]]
    assert engine.adapter.live == 2
