"""Fair sharing in front of an engine that knows nothing of it: one stock vLLM with four places."""

from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

pytest.importorskip("vllm")
pytestmark = [pytest.mark.e2e, pytest.mark.vllm]

from tests.e2e.queueing.engine import Outcome, flood, stock_engine  # noqa: E402

# Once everybody has had a turn. What two clients got may differ by some hundred tokens at any time (the
# requests that run, and a quantum each): 600 answers are 13,000 tokens; 90 showed 0.94 to 1.51.
WARM, ANSWERS = 36, 600
LEARNT = 6
# Small, so that these are many quanta: a request costs some 50 tokens.
QUANTUM = 64


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("engine")
    with stock_engine(folder) as url:
        yield url


@pytest.fixture(scope="module")
def outcomes(url: str) -> dict[str, Outcome]:
    """The same traffic, waiting at the gateway and in the engine."""
    found = {}
    for queue in ("engine", "gateway"):
        # Before the gateway has learnt how much the engine runs at once, requests wait there.
        settings = {"quantum": QUANTUM, "learnt": LEARNT} if queue == "gateway" else {}
        found[queue] = flood(url, warm=WARM, answers=ANSWERS, queue=queue, **settings)
    return found


def test_everybody_was_answered(outcomes: dict[str, Outcome]) -> None:
    assert all(outcome.statuses == {200} for outcome in outcomes.values())


def test_both_get_the_same_where_the_gateway_queues(outcomes: dict[str, Outcome]) -> None:
    """30 callers against 6: without fair queueing five times as much."""
    assert 0.8 <= outcomes["gateway"].ratio <= 1.25, outcomes["gateway"]
    assert outcomes["engine"].ratio >= 3, outcomes["engine"]


def test_the_light_tenant_does_not_wait_behind_the_flood(outcomes: dict[str, Outcome]) -> None:
    """Of the flood's requests, as many begin meanwhile as of its own: it has six open."""
    fair, unfair = (median(outcomes[name].passed) for name in ("gateway", "engine"))

    assert fair <= 10 and unfair >= 2 * fair, (fair, unfair)


def test_the_engines_own_queue_is_nearly_empty(outcomes: dict[str, Outcome]) -> None:
    """Sent and not begun: a few, where without the gateway's queue it is nearly everybody."""
    fair, unfair = (median(outcomes[name].engine_queue) for name in ("gateway", "engine"))

    assert fair <= 6, outcomes["gateway"].engine_queue
    assert unfair >= 20
    assert median(outcomes["gateway"].queued_here) >= 15  # and they wait here instead
