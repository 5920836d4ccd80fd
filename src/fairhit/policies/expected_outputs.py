"""How long an answer will be, by those that the client had before: VTC (OSDI 2024), section 5.1."""

from collections import deque

from fairhit.core.client_table import ClientTable
from fairhit.core.request import ClientId, Request
from fairhit.core.service import divide_half_up

# "The average output length of the last five requests from each client."
REMEMBERED = 5


class ExpectedOutputs:
    """The mean of each client's last five finished outputs; at first nothing is expected.

    Of at most `max_clients` clients; whoever is forgotten begins again.
    """

    def __init__(self, *, max_clients: int) -> None:
        self._recent: ClientTable[deque[int]] = ClientTable(
            limit=max_clients, may_forget=lambda _: True
        )

    def of(self, request: Request) -> int:
        """Rounded half up, for a charge is for whole tokens; it may exceed max_tokens. O(1)."""
        recent = self._recent.get(request.client)
        return divide_half_up(sum(recent), len(recent)) if recent else 0

    def finished(self, client: ClientId, output_len: int) -> None:
        """It had so many outputs. What was cut off says nothing of the length of others. O(1)."""
        recent = self._recent.get(client)
        if recent is None:
            recent = deque(maxlen=REMEMBERED)
            self._recent.admit(client, recent)
        recent.append(output_len)
