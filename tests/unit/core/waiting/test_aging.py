"""Ageing inside a client: the sum kept for its oldest request is the sum of what overtook it."""

from hypothesis import given
from hypothesis import strategies as st

from fairhit.core.request import Request
from fairhit.core.service import UNITS_PER_TOKEN
from fairhit.core.waiting.aging import Aging


def request(order, client="a"):
    return Request(id=str(order), client=client, prompt=(), input_len=1, max_tokens=1, order=order)


@given(
    limit=st.integers(0, 30),
    events=st.lists(
        st.tuples(
            st.sampled_from(["arrive", "admit", "cancel", "hold"]),
            st.integers(0, 99),
            st.integers(1, 9),
        ),
        max_size=60,
    ),
)
def test_a_client_is_due_when_its_oldest_was_overtaken_by_more_than_the_limit(limit, events):
    """
    [12] Beside the definition: each admission adds its units to every older waiting request.
    """
    fast = Aging(limit=limit)
    fast.open("a")
    overtaken: dict[int, int] = {}  # by order, one client
    made = {}
    held = None
    for order, (event, pick, units) in enumerate(events):
        if event == "arrive":
            made[order] = request(order)
            fast.add(made[order])
            overtaken[order] = 0
        elif overtaken:
            chosen = sorted(overtaken)[pick % len(overtaken)]
            if event == "admit":
                fast.overtake(made[chosen], units * UNITS_PER_TOKEN)
                for elder in overtaken:
                    overtaken[elder] += units if elder < chosen else 0
            fast.remove(made[chosen])
            del overtaken[chosen]
            if event == "hold":  # and back at its place: what overtook it before is forgotten
                held = chosen
        if held is not None:
            fast.add(made[held])
            younger = [order for order in overtaken if order > held]
            overtaken[held] = overtaken[min(younger)] if younger else 0
            held = None
        assert ("a" in fast.due()) == bool(overtaken and overtaken[min(overtaken)] > limit)
        if overtaken:
            assert fast.oldest("a") is made[min(overtaken)]
