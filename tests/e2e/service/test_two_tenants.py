"""The proof: a tenant who floods the service no longer hurts the other, and the cache stays warm.

Real vLLM engines, real requests; see `fairhit.local.demo.two_tenants` for what is asked of them.
"""

import asyncio

import pytest

from fairhit.cli import console
from fairhit.local.demo import two_tenants as flood

pytestmark = pytest.mark.e2e

SECONDS = 20
BACKLOGGED_S = 10


@pytest.fixture(scope="module")
def results() -> dict[str, flood.PolicyResult]:
    """Each policy on engines of its own, one after the other."""

    def run(scheduler: str, router: str) -> flood.PolicyResult:
        news: list[tuple[str, str]] = []
        return asyncio.run(
            flood.run_policy(
                scheduler,
                router,
                seconds=SECONDS,
                seed=0,
                notify=lambda name, text: news.append((name, text)),
                advance=lambda _: None,
            )
        )

    found = {}
    for scheduler, router in flood.POLICIES:
        found[scheduler] = run(scheduler, router)
        if found[scheduler].backlogged_s < BACKLOGGED_S:
            # Something else slowed one engine down and a queue ran dry: nothing was measured.
            found[scheduler] = run(scheduler, router)
    console.TERMINAL.print(console.tables(list(found.values())))
    return found


def test_both_were_backlogged_long_enough_to_tell(results: dict[str, flood.PolicyResult]):
    """Otherwise nothing below means anything: who has no request waiting is not held back."""
    assert all(result.backlogged_s >= BACKLOGGED_S for result in results.values()), results
    assert all(result.failures == 0 for result in results.values()), results


def test_heavy_gets_at_most_half_as_many_answers_for_one_of_light_as_under_fcfs(
    results: dict[str, flood.PolicyResult],
):
    """Answers are counted, not timed. FCFS gives each caller as many: heavy has 60, light 16, so 3.75.

    In three runs on two cores it was 3.75 to 3.92 under FCFS and .76 to .85 under DLPM. That is less than
    1, as heavy's prompts are less often cached: it has the same service with fewer answers.
    """
    fcfs, dlpm = (results[name].tenants for name in ("fcfs", "dlpm"))
    heavy_under, light_under = (
        [tenants[name].requests_per_s for tenants in (fcfs, dlpm)]
        for name in (flood.HEAVY, flood.LIGHT)
    )

    assert heavy_under[0] * light_under[1] >= 2 * heavy_under[1] * light_under[0], results
    assert light_under[1] > 0, results


def test_both_get_the_same_service_while_both_are_backlogged(
    results: dict[str, flood.PolicyResult],
):
    ratio = results["dlpm"].service_ratio

    assert ratio is not None and ratio <= 1.25, results["dlpm"]


def test_the_gap_stays_within_the_bound(results: dict[str, flood.PolicyResult]):
    """Theorem 4.1 per engine; the sum of the engines' bounds for all of them (DESIGN 3.5)."""
    dlpm = results["dlpm"]

    assert all(gap <= dlpm.bound_per_engine for gap in dlpm.gap_per_engine.values()), dlpm
    assert dlpm.gap <= dlpm.bound


def test_the_gap_is_small_beside_that_of_fcfs(results: dict[str, flood.PolicyResult]):
    """In a short run FCFS stays below the bound too, which is for the worst case: compare the two.

    Over 20 s it was 9 to 13 times DLPM's on two cores, and it goes on growing.
    """
    assert 3 * results["dlpm"].gap <= results["fcfs"].gap, results


def test_the_cache_is_as_warm_as_under_lpm(results: dict[str, flood.PolicyResult]):
    assert results["dlpm"].hit_rate >= results["lpm"].hit_rate - 0.05
