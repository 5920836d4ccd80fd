"""Adversarial traffic for property tests: small memories, shared prefixes, bursts and long outputs."""

from hypothesis import strategies as st

from fairlead.core.request import Request
from tests.reference.engine import Arrival

CLIENTS = "abcd"
CAPACITY = 60
MAX_INPUT = 24


def arrivals(*, clients=CLIENTS, min_size=1, max_size=60, max_step=40, oversize=False):
    """Lists of arrivals; prompts are prefixes of a few stems, so they share and split."""
    longest_output = CAPACITY + 10 if oversize else 20
    row = st.tuples(
        st.sampled_from(clients),
        st.integers(0, max_step),
        st.integers(0, 3),  # the stem
        st.integers(1, MAX_INPUT),  # input length
        st.integers(0, 8),  # how much of it is the request's own
        st.integers(1, longest_output),
    )
    return st.lists(row, min_size=min_size, max_size=max_size).map(_requests)


def _requests(rows):
    made = []
    for order, (client, step, stem, input_len, own, output_len) in enumerate(
        sorted(rows, key=lambda row: row[1])
    ):
        shared = max(0, input_len - own)
        prompt = tuple((stem, at) for at in range(shared)) + tuple(
            ("own", order, at) for at in range(input_len - shared)
        )
        request = Request(
            id=str(order),
            client=client,
            prompt=prompt,
            input_len=input_len,
            max_tokens=output_len,
            order=order,
        )
        made.append(Arrival(step=step, request=request))
    return made
