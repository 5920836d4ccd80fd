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


def floods(*, clients="ab"):
    """Everybody sends many requests of one kind at once and stays backlogged: where gaps grow.

    A kind is a prompt length, how much of it is the request's own, and an output length.
    """
    kind = st.tuples(st.integers(1, MAX_INPUT), st.integers(0, MAX_INPUT), st.integers(1, 20))
    kinds = st.lists(kind, min_size=len(clients), max_size=len(clients))
    return st.tuples(kinds, st.integers(20, 60)).map(
        lambda drawn: _requests(
            [
                (client, 0, stem, input_len, min(own, input_len), output_len)
                for _ in range(drawn[1])
                for stem, (client, (input_len, own, output_len)) in enumerate(
                    zip(clients, drawn[0], strict=True)
                )
            ]
        )
    )


def visits(*, cycles):
    """f waits all the time with small cached requests; g comes, is admitted, leaves, and returns."""
    rows = [("f", 0, 0, MAX_INPUT, 0, 1)] * (20 * cycles)
    rows += [("g", 12 * cycle, 1, MAX_INPUT, MAX_INPUT, 10) for cycle in range(cycles)]
    return _requests(rows)


def unlike(count):
    """f and g wait all the time: f with long outputs of a cached prompt, g with long new prompts."""
    return _requests([("f", 0, 0, MAX_INPUT, 0, 20), ("g", 0, 1, MAX_INPUT, MAX_INPUT, 1)] * count)


def late(count):
    """f is served alone for a long time; then g joins and both wait."""
    rows = [("f", 0, 0, MAX_INPUT, 0, 4)] * (6 * count)
    return _requests(rows + [("g", 2 * count, 1, MAX_INPUT, 0, 4)] * (2 * count))


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
