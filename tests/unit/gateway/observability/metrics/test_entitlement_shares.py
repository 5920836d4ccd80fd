"""Shares of entitlement: of what was served, by weighted max-min of what was asked for."""

import pytest

from fairhit.core.service import WEIGHT_SCALE
from fairhit.gateway.observability.metrics.entitlement_shares import WINDOW, EntitlementShares


def equal(_: str) -> int:
    return WEIGHT_SCALE


def test_a_client_that_asked_for_little_and_got_it_holds_no_one_back() -> None:
    """Jain's index of 900 and 100 tokens says 0.61; no client was treated unfairly."""
    made = EntitlementShares()
    made.add({"busy": 900, "quiet": 100}, {"busy": 5_000}, equal)

    assert made.shares == {"busy": 1.0, "quiet": 1.0}


def test_a_client_that_waits_behind_a_flood_is_short_of_its_entitlement() -> None:
    """Both asked for more than half of what was served: each is entitled to half."""
    made = EntitlementShares()
    made.add({"flood": 900, "light": 100}, {"flood": 9_000, "light": 700}, equal)

    assert made.shares == {"flood": pytest.approx(1.8), "light": pytest.approx(0.2)}


def test_a_client_that_only_waits_has_a_share_of_nothing() -> None:
    """It is the worst treated of all, and must not be missing."""
    made = EntitlementShares()
    made.add({"flood": 1_000}, {"light": 500}, equal)

    assert made.shares["light"] == 0.0


def test_weights_count() -> None:
    """Entitled to three quarters, the client got half."""
    made = EntitlementShares()
    weights = {"gold": 3 * WEIGHT_SCALE, "other": WEIGHT_SCALE}
    made.add({"gold": 500, "other": 500}, {"gold": 500, "other": 500}, weights.__getitem__)

    assert made.shares == {"gold": pytest.approx(2 / 3), "other": 2.0}


def test_after_a_minute_a_sample_counts_no_more() -> None:
    """A client without requests in the window has no share, and costs nothing."""
    made = EntitlementShares()
    made.add({"gone": 70}, {}, equal)
    for _ in range(WINDOW):
        assert "gone" in made.shares
        made.add({"here": 10}, {}, equal)

    assert made.shares == {"here": 1.0}
