"""The output pace is learnt from answers, and one client can change it only a little."""

import pytest

from fairhit.dispatch.accounting.output_pace import OutputPace


def learnt(*answers: tuple[int, int], before: int = 600) -> int:
    """Return the pace after `before` answers of 100 outputs at 20 ms, then (microseconds, outputs)."""
    pace = OutputPace()
    for ran_us, outputs in [(2_000_000, 100)] * before + list(answers):
        pace.learn(ran_us=ran_us, outputs=outputs)
    return pace.us


def test_the_pace_of_an_engine_is_found_from_either_side() -> None:
    assert learnt() == 20_000
    assert learnt(*[(100_000, 100)] * 100) == 1_000
    assert learnt(*[(20_000_000, 100)] * 2000) == 200_000


@pytest.mark.parametrize(
    "answer", [(10**12, 1), (2_000_000, 0), (0, 0)], ids=["an age", "no output", "nothing"]
)
def test_one_absurd_answer_changes_little(answer: tuple[int, int]) -> None:
    assert 20_000 <= learnt(answer) < 21_000


def test_answers_that_waited_long_do_not_hide_those_that_did_not() -> None:
    """Half of the answers take ten times as long: long prompts, an engine's queue, or intent."""
    assert learnt(*[(200_000, 1), (2_000_000, 100)] * 200) < 24_000


def test_many_short_answers_do_not_make_it_slow() -> None:
    """A client that only classifies, or wants to cancel long answers at a low price, sends these."""
    one, few, long = (300_000, 1), (300_000, 4), (2_000_000, 100)
    assert learnt(*[*[one] * 99, long] * 20) < 24_000
    assert learnt(*[*[few] * 30, long] * 60) < 30_000


def test_no_answer_makes_a_pace_of_nothing() -> None:
    assert learnt(*[(0, 10**9)] * 500) == 1
    assert OutputPace().outputs(0) == 0
