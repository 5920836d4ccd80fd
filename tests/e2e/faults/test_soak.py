"""A short soak: the long one is `make soak`."""

import asyncio
from pathlib import Path

from tests.e2e.faults.conftest import Say
from tests.e2e.faults.soak import judgement, soak


def test_no_request_is_lost_in_a_soak(tmp_path: Path, say: Say) -> None:
    """Everything at once: callers who leave, ask too much, or wrongly; engines that fail in every way."""
    outcome = asyncio.run(soak(tmp_path, seconds=10, every_s=1.0))
    assert judgement(outcome) == []
    say(f"{outcome.census}; {outcome.retried} retried; {dict(outcome.happened)}")
