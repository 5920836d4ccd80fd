"""What is counted, and whom nobody forgets, when workers are lost."""

from fairlead.core.events import Admit
from fairlead.metrics.summary import Summary
from fairlead.sim.config import Change
from tests.simulation.traces import SECOND, of, row, simulate


def test_a_prompt_that_a_failed_worker_had_is_in_its_clients_service_once():
    """
    Worker 1 has both requests' prefix when it gets what worker 0 had.
    """
    rows = [row("1", prompt="A5", output_len=5), row("2", prompt="A7", at=1, output_len=5)]
    fails = (Change(time_us=2 * SECOND, worker=0, up=False),)
    events = simulate(rows, replicas=2, router="round-robin", changes=fails)
    counted = Summary()
    for event in events:
        counted(event)
    clients = counted.as_dict()["clients"]

    assert [(e.worker, e.extend_len, e.again) for e in of(Admit, events)] == [
        (0, 5, False),
        (1, 7, False),
        (1, 1, True),
    ]
    assert [clients[name]["tokens"]["input"] for name in "12"] == [5, 7]
    assert [clients[name]["recomputed_tokens"] for name in "12"] == [1, 0]
