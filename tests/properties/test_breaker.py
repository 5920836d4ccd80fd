"""The circuit breaker against what it promises, for any order of events, and retries within their share."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from fairhit.gateway.pool.circuit_breaker import BreakerRules, CircuitBreaker, Phase
from fairhit.gateway.pool.retry import WINDOW_S, Retries, RetryRules

EVENTS = st.lists(
    st.tuples(st.sampled_from(["sent", "ok", "bad", "tick"]), st.integers(0, 30)),
    min_size=40,
    max_size=120,
)
RULES = st.builds(
    BreakerRules,
    failures=st.integers(1, 5),
    window_s=st.integers(1, 60),
    open_s=st.integers(1, 60),
    successes=st.integers(1, 3),
)
# The only ways from one state to another.
CAUSE = {
    (Phase.CLOSED, Phase.OPEN): "bad",
    (Phase.OPEN, Phase.HALF_OPEN): "tick",
    (Phase.HALF_OPEN, Phase.CLOSED): "ok",
    (Phase.HALF_OPEN, Phase.OPEN): "bad",
}


@settings(max_examples=50)
@given(EVENTS, RULES)
def test_the_states_follow_each_other_as_they_must(
    events: list[tuple[str, int]], rules: BreakerRules
) -> None:
    """
    Opens only by a failure; leaves open only by time, and to half open only; closes only from half
    open, by as many successes; while half open never more than that many are sent in one rest.
    """
    breaker, now = CircuitBreaker(rules), 0.0
    opened_at, trials, successes = 0.0, 0, 0
    for event, wait in events:
        now += wait
        before, could_send = breaker.phase, breaker.lets_through
        if event == "sent":
            if could_send:
                breaker.sent()
                trials += before is Phase.HALF_OPEN
        elif event == "ok":
            breaker.succeeded()
            successes += before is Phase.HALF_OPEN
        elif event == "bad":
            breaker.failed(now)
        else:
            breaker.tick(now)
        after = breaker.phase

        if before is not after:
            assert event == CAUSE[before, after]
            if before is Phase.OPEN:
                assert now - opened_at >= rules.open_s
            if after is Phase.CLOSED:
                assert successes == rules.successes
        if after is Phase.HALF_OPEN and event == "tick" and breaker.lets_through > could_send:
            trials = 0
        if before is not after:
            trials = successes = 0
            opened_at = now
        assert breaker.lets_through == (
            after is Phase.CLOSED or (after is Phase.HALF_OPEN and trials < rules.successes)
        )


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(st.sampled_from(["ok", "bad"]), st.integers(0, 3)),
        min_size=40,
        max_size=120,
    ),
    RULES,
)
def test_it_opens_exactly_when_the_naive_count_says_so(
    events: list[tuple[str, int]], rules: BreakerRules
) -> None:
    """The oracle keeps every outcome and counts; the breaker keeps a few numbers."""
    breaker, now = CircuitBreaker(rules), 0.0
    outcomes: list[tuple[str, float]] = []
    for event, wait in events:
        now += wait
        if event == "ok":
            breaker.succeeded()
            outcomes.append(("ok", now))
        elif event == "bad":
            breaker.failed(now)
            outcomes.append(("bad", now))
            bad = [number for number, (what, _) in enumerate(outcomes) if what == "bad"]
            opens = False
            if len(bad) >= rules.failures:
                first = bad[-rules.failures]
                good = sum(what == "ok" for what, _ in outcomes[first:])
                opens = now - outcomes[first][1] <= rules.window_s and 3 * good <= rules.failures
            assert (breaker.phase is Phase.OPEN) == opens
            if opens:
                return


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 3)), min_size=20, max_size=100),
    st.integers(0, 5),
)
def test_retries_keep_to_their_share_of_the_requests(
    events: list[tuple[bool, int]], floor: int
) -> None:
    """In no window are there more than floor + share * requests, counted over a window and a second."""
    rules = RetryRules(floor=floor, budget=0.2)
    retries, now, requests = Retries(rules, random.Random(0)), 0.0, 0
    arrived: list[float] = []
    granted: list[float] = []
    for is_retry, wait in events:
        for _ in range(wait):
            now += 1
            retries.tick(now, requests)
        if is_retry:
            recent = sum(at > now - WINDOW_S - 1 for at in arrived)
            so_far = sum(at > now - WINDOW_S for at in granted)
            if retries.grant(1, spends=True, now=now, requests=requests):
                granted.append(now)
                assert so_far < floor + 0.2 * recent
            else:
                fresh = sum(at > now - WINDOW_S for at in arrived)
                assert so_far >= floor + 0.2 * fresh
        else:
            requests += 1
            arrived.append(now)


@settings(max_examples=50)
@given(st.integers(1, 40), st.integers(0, 10**6))
def test_waits_grow_up_to_their_limit_and_differ(retry: int, seed: int) -> None:
    rules = RetryRules()
    wait = rules.wait_s(retry, random.Random(seed))
    full = min(rules.max_s, rules.initial_s * rules.multiplier ** (retry - 1))

    assert full * 0.8 <= wait <= full * 1.2
    assert wait == rules.wait_s(retry, random.Random(seed))
    assert wait != rules.wait_s(retry, random.Random(seed + 1))
