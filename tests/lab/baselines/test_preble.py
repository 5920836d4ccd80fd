"""Preble by example: exploit, explore, forget, move and copy."""

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.request import Request
from fairhit_lab.baselines.preble import CAPACITY_TOKENS, FIRST_PACE_US, Preble, prefill_us


class Fleet:
    """A router and requests made of words: `"system" * 100` is a prompt of 600 tokens."""

    def __init__(self, *workers: str, **settings: int) -> None:
        self.router = Preble(**settings)
        self.order = 0
        for worker in workers:
            self.router.add_worker(worker)

    def request(self, prompt: str, at_us: int = 0, max_tokens: int = 10) -> Request:
        self.order += 1
        return Request(
            id=str(self.order),
            client="a",
            prompt=tuple(prompt),
            input_len=len(prompt),
            max_tokens=max_tokens,
            order=self.order,
            arrival_us=at_us,
        )

    def send(self, prompt: str, at_us: int = 0, *, to: str | None = None) -> str:
        """Route and dispatch it, or only dispatch."""
        request = self.request(prompt, at_us)
        worker = to or self.router.route(request, matches=PrefixMatches())
        self.router.dispatch(request, worker, extend_len=1)
        return worker

    def serve(self, prompt: str, at_us: int, *, wait_us: int, to: str) -> None:
        """Serve a request at `to` to its end."""
        request = self.request(prompt, at_us)
        self.router.dispatch(request, to, extend_len=1)
        first_us = at_us + wait_us
        self.router.served(request, to, first_us=first_us, end_us=first_us, output_len=1)
        self.router.true_up(request, to, extend_len=1, output_len=1)


def test_a_prompt_that_is_mostly_known_goes_where_it_is_known() -> None:
    """However busy that worker is: exploitation looks at no other."""
    fleet = Fleet("u", "v")
    fleet.send("system" * 100, to="v")
    for _ in range(20):
        fleet.send("system" * 100, to="v")

    assert fleet.send("system" * 100 + "question") == "v"


def test_a_prompt_that_is_mostly_new_goes_where_it_costs_least() -> None:
    """A short shared beginning is no reason to stay."""
    fleet = Fleet("u", "v")
    fleet.send("system" + "x" * 500, to="v")

    assert fleet.send("system" + "y" * 500) == "u"


def test_exploring_weighs_prefills_against_decodes() -> None:
    """A worker runs a long answer, another computed a long prompt: the cheaper one is chosen."""
    fleet = Fleet("u", "v")
    fleet.router.dispatch(fleet.request("a" * 10, max_tokens=5), "u", extend_len=10)
    fleet.router.dispatch(fleet.request("b" * 10_000, max_tokens=1), "v", extend_len=10_000)

    assert fleet.router.cost_us("u") == prefill_us(10, 10) + 5 * FIRST_PACE_US
    assert fleet.router.cost_us("v") == prefill_us(10_000, 10_000) + FIRST_PACE_US
    assert fleet.send("c" * 10) == "u"


def test_what_has_left_the_window_costs_nothing() -> None:
    """Three minutes later the first one's prefill is forgotten, and so is that it was a miss."""
    fleet = Fleet("u", "v")
    fleet.serve("x" * 500, 0, wait_us=0, to="u")
    assert fleet.router.cost_us("u") == prefill_us(500, 500)
    fleet.serve("y" * 500, 180_000_001, wait_us=0, to="v")

    assert fleet.router.cost_us("u") == 0


def test_each_worker_is_believed_to_keep_what_was_used_last() -> None:
    """100 tokens of cache: the third prompt drives out the first, unless that was used again."""
    fleet = Fleet("u", "v", capacity=100)
    for at, prompt in enumerate(("x" * 45, "y" * 45, "x" * 45, "z" * 45)):
        fleet.serve(prompt, at, wait_us=0, to="u")

    assert fleet.router.tokens["u"] == 90
    assert [fleet.router.find(tuple(letter * 45))[1] for letter in "xyz"] == [45, 0, 45]


def test_what_runs_is_never_evicted() -> None:
    fleet = Fleet("u", capacity=10)
    fleet.send("x" * 45)
    fleet.send("y" * 45)

    assert fleet.router.tokens["u"] == 90


def uneven() -> Fleet:
    """Warmed up; all that two have in common is wanted at u, and v is idle."""
    fleet = Fleet("u", "v")
    for at in range(100):
        fleet.serve(f"{at:04}" * 10, at, wait_us=0, to="v")
    return fleet


def test_a_busy_worker_hands_stretches_over() -> None:
    """
    Two that are wanted often, at one worker: the one that costs less right now, as none of its
    requests runs, moves, and its next request follows.
    """
    fleet = uneven()
    at = 200
    while not fleet.router.moved:
        fleet.serve("x" * 2000, at, wait_us=0, to="u")
        fleet.serve("y" * 1000, at, wait_us=0, to="u")
        at += 1
        assert at < 300

    assert fleet.send("x" * 2000 + "?", at) == "v"
    assert fleet.send("y" * 1000 + "?", at) == "u"


def test_one_hot_prefix_is_copied_once_its_first_tokens_take_twice_as_long() -> None:
    """There is nothing else to move; as long as it is fast it stays alone."""
    for later_us, workers in ((1_000, {"u"}), (5_000, {"u", "v"})):
        fleet = uneven()
        for at in range(200, 220):
            fleet.serve("x" * 2000, at, wait_us=1_000 if at < 210 else later_us, to="u")
        node, _ = fleet.router.find(tuple("x" * 2000))

        assert set(node.holders) == workers


def test_nothing_moves_before_fifty_requests_a_worker() -> None:
    fleet = Fleet("u", "v")
    for at in range(99):
        fleet.serve("xy"[at % 2] * 1000, at, wait_us=0, to="u")

    assert fleet.router.moved == fleet.router.replicated == 0


def test_the_fit_of_its_code() -> None:
    """Below 192 tokens a prefill takes 22 ms, and the parabola never less; then it is a line."""
    assert prefill_us(10, 10) == round((22 + 0.32) / 0.9 * 1000)
    assert prefill_us(383, 383) == prefill_us(10, 10)
    assert prefill_us(1000, 1000) == round((0.1084 * 1000 + 4.21 + 0.32) / 0.9 * 1000)
    assert prefill_us(100, 20_000) > prefill_us(100, 10_000)
    assert CAPACITY_TOKENS == 198_516


def test_a_worker_keeps_no_more_than_its_capacity_once_its_requests_end() -> None:
    """Prefixes of running requests exceed the capacity if they must; finished ones are evicted at once."""
    fleet = Fleet("u", capacity=30)
    requests = [fleet.request(letter * 20) for letter in "ab"]
    for request in requests:
        fleet.router.dispatch(request, "u", extend_len=20)
    assert fleet.router.tokens["u"] == 40

    for request in requests:
        fleet.router.true_up(request, "u", extend_len=20, output_len=1)

    assert fleet.router.tokens["u"] == 20
