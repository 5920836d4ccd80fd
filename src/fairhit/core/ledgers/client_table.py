"""A bounded table of one record per client, so that no table grows with every client ever seen."""

from collections.abc import Callable
from typing import Generic, TypeVar

from fairhit.core.request import ClientId
from fairhit.errors import QueueFull

State = TypeVar("State")

# Stands for all clients beyond a full table; every table has a record for it.
OTHER: ClientId = "other"

# Records examined per new client once the table is full: enough to find one that may be forgotten in
# practice, few enough to cost nothing.
_SWEEP = 8


class ClientTable(Generic[State]):
    """A record per client; a full table forgets a record that `may_forget` allows for each new client.

    `may_forget` must be true only for a record that a new client's would equal or better, so that no
    client gains by being forgotten (DESIGN 3.2). `update` always succeeds: a client that was forgotten
    while it ran is charged all the same. So the table holds at most `limit` records and one for each
    running request, and admits no new client while it is over the limit.
    """

    def __init__(self, *, limit: int, may_forget: Callable[[ClientId], bool]) -> None:
        assert limit >= 1, limit
        self._limit = limit
        self._may_forget = may_forget
        self._records: dict[ClientId, State] = {}
        # The client's record, or None. O(1). Read several times a decision, so it is the dict's own method.
        self.get: Callable[[ClientId], State | None] = self._records.get

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, client: ClientId) -> bool:
        return client in self._records

    def update(self, client: ClientId, record: State) -> None:
        """Replace the record of a client that was admitted once. O(1)."""
        self._records[client] = record

    def admit(self, client: ClientId, record: State) -> None:
        """Insert the first record of a client. O(1).

        Raises QueueFull if the table is full and no record examined may be forgotten; never for OTHER.
        """
        assert client not in self._records, client
        examined = 0
        while len(self._records) >= self._limit and client != OTHER:
            if examined == _SWEEP:
                raise QueueFull(f"too many clients: the table holds {self._limit}, all in use")
            examined += 1
            oldest = next(iter(self._records))
            if self._may_forget(oldest):
                del self._records[oldest]
            else:  # to the end: the next call examines others
                self._records[oldest] = self._records.pop(oldest)
        self._records[client] = record
