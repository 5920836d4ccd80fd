"""What gives way in a full memory: what was used least recently, and a request uses its prompt."""

from tests.lab.simulation.traces import of, row, simulate

from fairhit_lab.events import Admit


def test_a_prompt_is_used_until_its_request_ends():
    """
    A runs until 30; B, which came later, ended at 4. Then C needs the room of one: B's goes.
    """
    rows = [
        row("A", prompt="A20", output_len=30),
        row("B", at=1, prompt="B20", output_len=3),
        row("C", at=40, prompt="C20", output_len=40),
        row("A2", at=90, prompt="A20", output_len=1),
        row("B2", at=91, prompt="B20", output_len=1),
    ]
    cost = {event.request: event.extend_len for event in of(Admit, simulate(rows, kv_tokens=80))}

    assert (cost["A2"], cost["B2"]) == (1, 20)
