"""File descriptors: how many connections they allow, and what stays in reserve."""

from contextlib import ExitStack

import pytest

from fairhit.errors import ConfigError
from fairhit.gateway.http.accept import descriptors
from fairhit.gateway.http.accept.descriptors import Descriptors


@pytest.mark.parametrize(
    ("number", "places"), [(400, 300), (4096, 3072), (8000, 6976), (65_536, 8192)]
)
def test_a_quarter_or_1024_are_in_reserve(number: int, places: int) -> None:
    assert Descriptors(number).client_slots(8192) == places


def test_connections_to_engines_leave_callers_fewer_places() -> None:
    shared = Descriptors(400)
    with shared.connecting(), shared.connecting():
        assert shared.client_slots(8192) == 298
    assert shared.client_slots(8192) == 300
    assert shared.engines == 0


def test_where_all_are_taken_what_has_no_request_is_closed_for_an_engines() -> None:
    """An idle connection to an engine first, then a caller's; and else there is none."""
    closed: list[str] = []
    idle, spare = [1, 2], [1]

    def close(kind: str, left: list[int]) -> bool:
        closed.extend([kind] if left else [])
        return bool(left and left.pop())

    shared = Descriptors(
        400,
        clients=lambda: 298,
        close_one=lambda: close("caller", spare),
        close_idle=lambda: close("engine", idle),
    )
    with ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(shared.connecting())
        with pytest.raises(OSError, match="Too many open files"):
            stack.enter_context(shared.connecting())
        assert shared.engines == 5

    assert closed == ["engine", "engine", "caller"]


def test_one_idle_connection_to_an_engine_is_closed_for_a_caller() -> None:
    shared = Descriptors(400, clients=lambda: 300, close_idle=lambda: True)
    assert shared.client_slots(8192) == 301
    assert shared.client_slots(200) == 200


def test_what_is_too_little_is_said_with_both_numbers() -> None:
    assert descriptors.shortage(8192, 2 * 8192 + 1024) is None
    line = descriptors.shortage(8192, 4096)
    assert line is not None
    assert "--max-connections 8192 may take 17408 file" in line
    assert "may open 4096" in line
    with pytest.raises(ConfigError, match=r"may open 64 files, .* needs 128 .* up to 17408"):
        descriptors.shortage(8192, 64)


def test_the_reason_and_the_numbers_are_said_at_most_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("fairhit.gateway.http.accept.descriptors.monotonic", lambda: now[0])
    shared = Descriptors(400)
    for moment in (0.0, 1.0, 59.0, 61.0):
        now[0] = moment
        shared.ran_out(OSError(24, "Too many open files"))

    assert ["(Too many open files)" in line for line in caplog.messages] == [True, True]
