"""The set of ids that is remembered while a trace streams."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from fairhit_lab.traces.hash_set import HashSet


@given(st.lists(st.text(max_size=3)))
def test_it_answers_like_a_set(texts):
    seen, expected = HashSet(), set()

    for text in texts:
        assert (text in seen) == (text in expected)
        assert seen.add(text) == (text not in expected)
        expected.add(text)
    assert seen.size == len(expected)


def test_nothing_is_lost_when_it_grows():
    seen = HashSet()
    names = [f"r{n}" for n in range(20_000)]

    assert all(seen.add(name) for name in names)
    assert all(name in seen for name in names)
    assert not any(f"q{n}" in seen for n in range(20_000))


def test_an_id_costs_at_most_32_bytes():
    count = 40_000
    tracemalloc.start()
    seen = HashSet()
    for n in range(count):
        seen.add(f"request-{n}")
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert held <= 32 * count
