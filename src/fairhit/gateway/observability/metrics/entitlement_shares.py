"""Shares of entitlement over the last minute: what clients received against max-min fairness.

Pure: a sample is added once a second. Service is extend + 2 * output tokens. A client's demand is what it
received in the window, and an estimate of what its requests under way and waiting have yet to receive.
"""

from collections import deque
from collections.abc import Callable, Mapping

from fairhit.core.ledgers.entitlement import entitlements
from fairhit.core.request import ClientId

# Samples in the window, one a second.
WINDOW = 60


class EntitlementShares:
    """`shares`: service divided by entitlement, for each client that was served or waited in the window."""

    def __init__(self) -> None:
        self._samples: deque[dict[ClientId, int]] = deque()
        self._received: dict[ClientId, int] = {}  # in the window; positive numbers only
        self.shares: dict[ClientId, float] = {}

    def add(
        self,
        served: Mapping[ClientId, int],
        outstanding: Mapping[ClientId, int],
        weight: Callable[[ClientId], int],
    ) -> None:
        """Add what clients received since the last sample, and what their requests have yet to receive.

        `weight` is in millionths. O(n log n) for n clients in the window.
        """
        sample = {client: tokens for client, tokens in served.items() if tokens > 0}
        self._samples.append(sample)
        received = self._received
        for client, tokens in sample.items():
            received[client] = received.get(client, 0) + tokens
        if len(self._samples) > WINDOW:
            for client, tokens in self._samples.popleft().items():
                received[client] -= tokens
                if not received[client]:
                    del received[client]
        due = entitlements(
            [
                (client, received.get(client, 0) + outstanding.get(client, 0), weight(client))
                for client in {**received, **outstanding}
            ],
            sum(received.values()),
        )
        self.shares = {
            client: received.get(client, 0) / tokens for client, tokens in due.items() if tokens
        }
