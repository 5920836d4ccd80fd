"""What the simulator's routers are set to where no flag says otherwise."""

import pytest
from tests.lab.simulation.traces import of, row, simulate

from fairhit_lab.events import Dispatch


@pytest.mark.parametrize(("charge", "workers"), [(None, 2), ("input", 2), ("extend", 1)])
def test_d2lpm_charges_a_worker_for_whole_prompts_unless_set_otherwise(charge, workers):
    """
    One prompt again and again, one at a time: computed once, it costs 22 or 3 of a quantum of 60.
    """
    rows = [row(str(n), client="a", at=3 * n, prompt="A20", output_len=1) for n in range(6)]
    given = {"worker_quantum": 60, "min_match": 5, "worker_charge": charge}
    events = simulate(rows, replicas=2, router="d2lpm", **given)

    assert len({event.worker for event in of(Dispatch, events)}) == workers


def test_sticky_keeps_a_program_at_one_worker():
    """The `program` of a row is its routing key; a row without one goes where least is in flight."""
    rows = [row(str(n), client="a", at=n / 10, program=f"p{n % 6}") for n in range(30)]
    workers: dict[int, set[int]] = {}
    for event in of(Dispatch, simulate(rows, replicas=3, router="sticky")):
        workers.setdefault(int(event.request) % 6, set()).add(event.worker)

    assert all(len(each) == 1 for each in workers.values()), workers
    assert len(set.union(*workers.values())) > 1
