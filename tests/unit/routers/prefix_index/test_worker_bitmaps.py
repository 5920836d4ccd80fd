"""Worker bitmaps against a set of workers for each unit, while workers are added, removed and added again."""

from hypothesis import given
from hypothesis import strategies as st

from fairhit.routers.prefix_index.worker_bitmaps import WorkerBitmaps

NAMES = [f"w{number}" for number in range(6)]
STEPS = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 4)), max_size=40)


@given(STEPS)
def test_a_match_names_the_workers_that_hold_each_leading_unit(
    steps: list[tuple[str, int]],
) -> None:
    """A worker that is added takes the lowest free bit, which another may have had."""
    bitmaps, bits, held = WorkerBitmaps(), {}, {}
    for name, units in steps:
        if name in bits:
            for unit in range(held.pop(name)):
                bitmaps.release(unit, bits[name])
            bitmaps.drop_worker(bits.pop(name))
        else:
            bits[name], held[name] = bitmaps.add_worker(name), units
            for unit in range(units):
                bitmaps.bits[unit] = bitmaps.bits.get(unit, 0) | bits[name]
        lengths = sorted({length for length in held.values() if length}, reverse=True)
        expected = [(length, {w for w in held if held[w] >= length}) for length in lengths]

        assert bitmaps.match(range(5)).by_length == expected
        assert len(set(bits.values())) == len(bits)
