"""The least loaded worker that will do, against asking all of them."""

from hypothesis import given, settings
from hypothesis import strategies as st

from fairhit.routers.load_order import LoadOrder

WORKERS = [f"w{n}" for n in range(80)]
SOME = st.sets(st.sampled_from(WORKERS)) | st.sets(st.sampled_from(WORKERS[:8]), min_size=4)
MANY = st.just(set(WORKERS[:60]))


def naive(loads, turn, among, candidates, but):
    """Sort all; equals rotated; the first that may."""
    left = sorted(loads, key=lambda worker: loads[worker])  # stable: by arrival
    path = []
    while left:
        equals = [worker for worker in left if loads[worker] == loads[left[0]]]
        left = left[len(equals) :]
        begin = turn % len(equals)
        path += equals[begin:] + equals[:begin]
    for worker in path:
        allowed = (among is None or worker in among) and (
            candidates is None or worker in candidates
        )
        if allowed and worker not in but:
            return worker
    return None


@settings(deadline=None, max_examples=300)
@given(
    loads=st.lists(st.integers(0, 2), max_size=80).map(
        lambda each: dict(zip(WORKERS, each, strict=False))
    ),
    moves=st.lists(st.tuples(st.sampled_from(WORKERS), st.integers(-2, 3)), max_size=30),
    turn=st.integers(0, 1 << 32),
    among=st.none() | SOME | MANY,
    candidates=st.none() | SOME | MANY,
    but=SOME,
)
def test_the_least_loaded_is_found_as_if_all_were_asked(
    *, loads, moves, turn, among, candidates, but
):
    order = LoadOrder()
    for worker in loads:
        order.add(worker)
        order.change(worker, loads[worker])
    for worker, by in moves:
        if worker in loads and loads[worker] + by >= 0:
            order.change(worker, by)
            loads[worker] += by
        elif worker in loads and len(loads) > 1:
            order.remove(worker)
            del loads[worker]
    order.check()
    among = None if among is None else among & loads.keys()
    candidates = None if candidates is None else candidates & loads.keys()

    found = order.least(turn, among=among, candidates=candidates, but=but)
    assert found == naive(loads, turn, among, candidates, but)
    assert list(order.ascending(0)) == sorted(loads, key=lambda worker: loads[worker])
