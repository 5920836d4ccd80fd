"""Adversarial traffic for property tests: small memories, shared prefixes, bursts and long outputs."""

from dataclasses import replace

from hypothesis import strategies as st

from fairhit.core.request import Request
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
    return st.lists(row, min_size=min_size, max_size=max_size).map(requests_of)


def floods(*, clients="ab"):
    """Everybody sends many requests of one kind at once and stays backlogged: where gaps grow.

    A kind is a prompt length, how much of it is the request's own, and an output length.
    """
    kind = st.tuples(st.integers(1, MAX_INPUT), st.integers(0, MAX_INPUT), st.integers(1, 20))
    kinds = st.lists(kind, min_size=len(clients), max_size=len(clients))
    return st.tuples(kinds, st.integers(20, 60)).map(
        lambda drawn: requests_of(
            [
                (client, 0, stem, input_len, min(own, input_len), output_len)
                for _ in range(drawn[1])
                for stem, (client, (input_len, own, output_len)) in enumerate(
                    zip(clients, drawn[0], strict=True)
                )
            ]
        )
    )


def duels(*, clients="abc", early_ends=False):
    """Everybody repeats a pattern of its own, from the start or in visits: long debts, small steps.

    A pattern is a few kinds of request, each so many times: prompt, own part and output, which may
    be all that memory holds. With `early_ends` outputs stop short of max_tokens.
    """
    kind = st.tuples(
        st.integers(1, MAX_INPUT),
        st.integers(0, MAX_INPUT),
        st.integers(1, 20) | st.integers(1, CAPACITY - 1),
        st.integers(1, 4),  # times in a row
    )
    client = st.tuples(
        st.lists(kind, min_size=1, max_size=3),
        st.just(0) | st.integers(1, 60),  # steps from one round of the pattern to the next
        st.integers(0, 100),  # when it begins
    )
    shortfall = st.integers(1, 10) if early_ends else st.just(10)
    drawn = st.tuples(st.lists(client, min_size=2, max_size=len(clients)), shortfall)
    return drawn.map(lambda each: _duel(clients, *each))


def _duel(clients, patterns, tenths):
    rows = [
        (client, begin + each * period, stem, input_len, min(own, input_len), output_len)
        for stem, (client, (kinds, period, begin)) in enumerate(
            zip(clients, patterns, strict=False)
        )
        for each in range(5)
        for input_len, own, output_len, times in kinds
        for _ in range(times)
    ]
    made = requests_of([(*row[:5], min(row[5], CAPACITY - row[3])) for row in rows])
    return [replace(each, output_len=-(-each.request.max_tokens * tenths // 10)) for each in made]


def visits(*, cycles):
    """f waits all the time with small cached requests; g comes, is admitted, leaves, and returns."""
    rows = [("f", 0, 0, MAX_INPUT, 0, 1)] * (20 * cycles)
    rows += [("g", 12 * cycle, 1, MAX_INPUT, MAX_INPUT, 10) for cycle in range(cycles)]
    return requests_of(rows)


def unlike(count):
    """f and g wait all the time: f with long outputs of a cached prompt, g with long new prompts."""
    return requests_of(
        [("f", 0, 0, MAX_INPUT, 0, 20), ("g", 0, 1, MAX_INPUT, MAX_INPUT, 1)] * count
    )


def late(count):
    """f is served alone for a long time; then g joins and both wait."""
    rows = [("f", 0, 0, MAX_INPUT, 0, 4)] * (6 * count)
    return requests_of(rows + [("g", 2 * count, 1, MAX_INPUT, 0, 4)] * (2 * count))


def requests_of(rows):
    """One arrival for each (client, step, stem, input length, own part of it, output length)."""
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
