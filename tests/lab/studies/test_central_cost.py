"""The ways of scheduling that Figure 4 times: each does all of its work, whatever it takes."""

import pytest

from fairhit_lab.studies.dlpm.central_cost import WAYS, SeededTraffic, decode_ms, measured


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("engines", [1, 3])
def test_a_round_is_measured_beside_a_decode_step(way, engines):
    found = measured(0, way=way, engines=engines, waiting=20, step_time="linear:0.02,0,0")

    assert found["round_ms"] > 0
    assert found["decode_ms"] == 20
    assert found["of_a_step"] == found["round_ms"] / 20


def test_a_decode_step_is_of_25_requests():
    assert decode_ms("linear:0,0,0.001") == 25


def test_prompts_share_what_table_2_says():
    """
    Two requests of one client and prefix agree in 546 tokens and not in the rest.
    """
    traffic = SeededTraffic(0)
    requests = [traffic.request() for _ in range(400)]
    first = list(requests[0].prompt)

    alike = [list(r.prompt) for r in requests[1:] if list(r.prompt)[:546] == first[:546]]

    assert alike
    assert all(len(prompt) == 586 and prompt[546:] != first[546:] for prompt in alike)
