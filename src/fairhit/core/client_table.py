"""A bounded table of what is known of each client: none may grow with every name ever seen."""

from collections.abc import Callable
from typing import Generic, TypeVar

from fairhit.core.request import ClientId
from fairhit.errors import QueueFull

State = TypeVar("State")

# Stands for all the clients beyond a full table; it has a place in every one.
OTHER: ClientId = "other"

# Records examined per newcomer once the table is full: enough to find one that may go in practice,
# few enough to cost nothing.
_SWEEP = 8


class ClientTable(Generic[State]):
    """One record a client; a full table forgets one that `may_forget` allows for each newcomer.

    `may_forget` must be true only for a record that a newcomer's would equal or better, so that
    nobody gains by being forgotten (DESIGN 3.2). `update` always succeeds: a client that was
    forgotten while it ran pays all the same. So the table holds at most `limit` records and one
    for each running request, and takes no newcomer while it is over the limit.
    """

    def __init__(self, *, limit: int, may_forget: Callable[[ClientId], bool]) -> None:
        assert limit >= 1, limit
        self._limit = limit
        self._may_forget = may_forget
        self._records: dict[ClientId, State] = {}

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, client: ClientId) -> bool:
        return client in self._records

    def get(self, client: ClientId) -> State | None:
        """The client's record, if there is one. O(1)."""
        return self._records.get(client)

    def update(self, client: ClientId, record: State) -> None:
        """Write the record of a client that was admitted once. O(1)."""
        self._records[client] = record

    def admit(self, client: ClientId, record: State) -> None:
        """Write the first record of a client. O(1).

        Raises QueueFull when the table is full and nobody looked at may go; never for OTHER.
        """
        assert client not in self._records, client
        looked_at = 0
        while len(self._records) >= self._limit and client != OTHER:
            if looked_at == _SWEEP:
                raise QueueFull(f"too many clients: the table holds {self._limit}, none settled")
            looked_at += 1
            oldest = next(iter(self._records))
            if self._may_forget(oldest):
                del self._records[oldest]
            else:  # to the end: the next sweep looks at others
                self._records[oldest] = self._records.pop(oldest)
        self._records[client] = record
