"""FairQueue under every policy: preemption, blocking, requests that do not fit, victims, the ledger."""

import pytest

from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.fair_queue import PREEMPTION_COOLDOWN_PASSES, FairQueue, RequestState
from fairhit.core.request import Request
from fairhit.core.service import UNITS_PER_TOKEN, Service
from fairhit.errors import ConfigError
from fairhit.policies import SCHEDULERS, make_policy
from fairhit.policies.fcfs import FCFS


def scheduler_of(name="dlpm", *, max_skips=32, **settings):
    return FairQueue(make_policy(name, cache=RadixTree(), **settings), max_skips=max_skips)


def request(order, client="a", *, input_len=4):
    prompt = tuple((order, at) for at in range(input_len))
    return Request(
        id=str(order), client=client, prompt=prompt, input_len=input_len, max_tokens=8, order=order
    )


def admit_next(scheduler):
    chosen = scheduler.propose()
    scheduler.admit(chosen, extend_len=chosen.input_len)
    return chosen


@pytest.mark.parametrize("name", SCHEDULERS)
def test_preempted_requests_come_back_first_and_pay_nothing_again(name):
    """
    They paid at their first admission; charging the recomputation would make the victim pay twice.
    """
    scheduler = scheduler_of(name)
    first, second, other = request(1), request(2), request(3, "b")
    for waiting in (first, second, other):
        scheduler.add(waiting)
    scheduler.begin_pass()
    running = [admit_next(scheduler), admit_next(scheduler)]
    for victim in reversed(running):
        scheduler.preempt(victim)
    credit = {client: scheduler.credit(client) for client in "ab"}

    scheduler.begin_pass()
    back = [admit_next(scheduler), admit_next(scheduler)]

    assert back == sorted(running, key=lambda request: request.order)
    assert {client: scheduler.credit(client) for client in "ab"} == credit
    assert scheduler.recomputed_len == 8


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_prompt_that_grows_while_it_runs_is_paid_for(name):
    """
    Streaming input: a live session's next turn is new work, though the session never waits again.
    """
    scheduler = scheduler_of(name)
    session = request(1)
    scheduler.add(session)
    scheduler.begin_pass()
    admit_next(scheduler)
    scheduler.decode(session, 2)
    credit = scheduler.credit("a")

    scheduler.extend(session, 10)

    assert scheduler.service("a") == Service(extend_len=14, cached_len=0, output_len=2)
    assert scheduler.credit("a") in {credit, credit - 10 * UNITS_PER_TOKEN}
    assert len(scheduler) == 0


def test_a_turn_of_a_forgotten_client_is_paid_by_the_shared_account():
    """
    The table may have given its place away while it ran; nothing may be lost or raised for that.
    """
    scheduler = scheduler_of("dlpm", max_clients=1)
    session = request(1)
    scheduler.add(session)
    scheduler.begin_pass()
    admit_next(scheduler)
    scheduler.add(request(2, "b"))

    scheduler.extend(session, 10)

    assert scheduler.service("other").extend_len == 10


def test_a_preempted_request_that_does_not_fit_ends_the_pass():
    """
    Else newer requests would take the memory it waits for.
    """
    scheduler = scheduler_of()
    for order in (1, 2):
        scheduler.add(request(order))
    scheduler.begin_pass()
    victim = admit_next(scheduler)
    scheduler.preempt(victim)
    scheduler.begin_pass()
    scheduler.skip(scheduler.propose())

    assert scheduler.propose() is None
    scheduler.begin_pass()
    assert scheduler.propose() is victim


def test_a_held_request_neither_has_nor_blocks_credit():
    """
    A request that waits for its grammar must not freeze the refill of everybody else.
    """
    scheduler = scheduler_of(quantum=4)
    waits, goes = request(1, "waits"), request(2, "goes")
    scheduler.add(waits)
    scheduler.begin_pass()
    assert scheduler.propose() is waits  # this gave it credit
    scheduler.block(waits)
    scheduler.add(goes)

    assert admit_next(scheduler) is goes
    scheduler.unblock(waits)
    assert scheduler.propose() is waits


def test_a_released_request_keeps_its_place():
    """
    Being held is not the caller's fault: it is as old as before.
    """
    scheduler = scheduler_of("fcfs")
    old, new = request(1), request(2)
    scheduler.add(old)
    scheduler.block(old)
    scheduler.add(new)
    scheduler.unblock(old)
    scheduler.begin_pass()

    assert scheduler.propose() is old


def test_a_pass_skips_a_bounded_number_of_requests_and_reports_it():
    """
    Finding what fits may not cost the whole queue (DESIGN 3.2).
    """
    scheduler = scheduler_of("lpm", max_skips=2)
    for order in range(5):
        scheduler.add(request(order))
    scheduler.begin_pass()
    scheduler.skip(scheduler.propose())
    scheduler.skip(scheduler.propose())

    assert scheduler.propose() is None
    assert scheduler.truncated_passes == 1
    scheduler.begin_pass()
    assert scheduler.propose().id == "0"


def test_a_misfit_with_credit_keeps_the_others_waiting():
    """
    No refill while a waiting client has credit, even if its request does not fit: so memory drains
    and big requests do not starve.
    """
    scheduler = scheduler_of(quantum=100)
    scheduler.add(request(1, "big"))
    scheduler.begin_pass()
    big = scheduler.propose()
    scheduler.add(request(2, "small"))
    scheduler.skip(big)

    assert scheduler.propose() is None


def test_the_victim_is_the_newest_request_of_the_client_with_the_least_credit():
    """
    Under memory pressure the client that took most gives way, with its latest.
    """
    scheduler = scheduler_of(quantum=50)
    running = []
    for order, client in enumerate("abab"):
        scheduler.add(request(order, client))
    scheduler.begin_pass()
    running = [admit_next(scheduler) for _ in range(4)]
    scheduler.decode(running[0], 5)
    greedy = [r for r in running if r.client == running[0].client]

    assert scheduler.victim(running) is greedy[-1]


def test_no_request_is_preempted_twice_in_a_row():
    """
    A victim that comes back at once and goes again would be recomputed for ever.
    """
    scheduler = scheduler_of("fcfs")
    for order in (1, 2):
        scheduler.add(request(order))
    scheduler.begin_pass()
    running = [admit_next(scheduler), admit_next(scheduler)]
    scheduler.preempt(running[1])
    scheduler.begin_pass()
    admit_next(scheduler)

    assert scheduler.victim(running) is running[0]
    for _ in range(PREEMPTION_COOLDOWN_PASSES):
        scheduler.begin_pass()
    assert scheduler.victim(running) is running[1]


@pytest.mark.parametrize("state", RequestState)
@pytest.mark.parametrize("name", SCHEDULERS)
def test_cancelling_from_any_state_leaves_nothing_behind(name, state):
    """
    A caller may go at any moment; what it consumed stays charged, nothing else stays.
    """
    scheduler = scheduler_of(name)
    gone = request(1)
    scheduler.add(gone)
    scheduler.begin_pass()
    if state is RequestState.BLOCKED:
        scheduler.block(gone)
    elif state is not RequestState.WAITING:
        admit_next(scheduler)
        scheduler.decode(gone, 3)
    if state is RequestState.PREEMPTED:
        scheduler.preempt(gone)
    scheduler.cancel(gone)

    assert len(scheduler) == scheduler.waiting("a") == len(list(scheduler)) == 0
    assert scheduler.propose() is None
    paid = state in (RequestState.RUNNING, RequestState.PREEMPTED)
    assert scheduler.service("a").output_len == (3 if paid else 0)


def test_the_clients_on_record_are_bounded_and_the_sum_is_not_lost():
    """
    A million one-off clients must not fill the memory, nor vanish from the totals.
    """
    scheduler = FairQueue(make_policy("fcfs", cache=RadixTree()), max_clients=2)
    for order in range(5):
        scheduler.add(request(order, f"client-{order}"))
        scheduler.begin_pass()
        scheduler.finish(admit_next(scheduler))

    assert scheduler._services.others.extend_len == 3 * 4
    assert scheduler.service("client-0").extend_len == 0
    assert scheduler.service("client-4").extend_len == 4


def test_ageing_lets_the_oldest_of_a_client_go_before_its_better_matches():
    """
    A cold request among hot ones of its own client waits at most max_overtake tokens of service.
    """
    tree = RadixTree()
    hot = tuple(range(10))
    tree.release(tree.insert(tree.acquire(hot, 1), hot, 1))
    scheduler = FairQueue(make_policy("dlpm", cache=tree, quantum=1000, max_overtake=3))
    cold = request(0, input_len=5)
    scheduler.add(cold)
    for order in range(1, 9):
        scheduler.add(
            Request(
                id=str(order),
                client="a",
                prompt=(*hot, order),
                input_len=11,
                max_tokens=1,
                order=order,
            )
        )
    scheduler.begin_pass()
    order = []
    while chosen := scheduler.propose():
        scheduler.admit(chosen, extend_len=5 if chosen is cold else 1)
        order.append(chosen.id)

    assert order == ["1", "2", "3", "4", "0", "5", "6", "7", "8"]


class Listening(FCFS):
    """A policy that records the end of every request."""

    def __init__(self):
        super().__init__()
        self.ends = []

    def on_end(self, request, *, output_len, finished):
        self.ends.append((request.id, output_len, finished))


def test_a_policy_may_be_notified_of_the_end_of_requests_that_it_admitted():
    """
    One finishes after two outputs, one is cancelled after one, and one before it was admitted.
    """
    policy = Listening()
    scheduler = FairQueue(policy)
    for order in (1, 2, 3):
        scheduler.add(request(order))
    scheduler.begin_pass()
    first, second = admit_next(scheduler), admit_next(scheduler)
    scheduler.decode(first, 2)
    scheduler.decode(second, 1)
    scheduler.finish(first)
    scheduler.preempt(second)
    scheduler.cancel(second)
    scheduler.cancel(scheduler.propose())

    assert policy.ends == [("1", 2, True), ("2", 1, False)]


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("just", {}, f"scheduler: expected one of {', '.join(SCHEDULERS)}, got 'just'"),
        (
            "fcfs",
            {"quantum": 5},
            "quantum: the scheduler fcfs has none; expected with drr, dlpm, dlpm-predict, fair",
        ),
        ("dlpm", {"quantum": 0}, "quantum: expected a whole number of tokens >= 1, got 0"),
        (
            "dlpm",
            {"quantum": "many"},
            "quantum: expected a whole number of tokens >= 1, got 'many'",
        ),
        ("dlpm", {"charge": "all"}, "charge: expected one of extend, input, got 'all'"),
        (
            "dlpm",
            {"max_overtake": -1},
            "max_overtake: expected a whole number of tokens >= 0, got -1",
        ),
    ],
)
def test_a_wrong_setting_is_one_clear_line(name, settings, message):
    """
    The operator reads what, where and what was expected.
    """
    with pytest.raises(ConfigError) as failure:
        make_policy(name, cache=RadixTree(), **settings)
    assert str(failure.value) == message


def test_credit_is_in_units():
    """
    A quantum of one token is 10^8 units (DESIGN 3.1).
    """
    scheduler = scheduler_of(quantum=1)
    scheduler.add(request(1))
    scheduler.begin_pass()
    scheduler.propose()

    assert scheduler.credit("a") == UNITS_PER_TOKEN
