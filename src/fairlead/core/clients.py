"""A bounded table of what is known of each client: none may grow with every name ever seen."""

from collections.abc import Callable
from typing import Generic, TypeVar

from fairlead.core.request import ClientId
from fairlead.errors import QueueFull

State = TypeVar("State")

# Records examined per newcomer once the table is full: enough to find one that may go in practice,
# few enough to cost nothing.
_SWEEP = 8


class ClientTable(Generic[State]):
    """One record a client, at most `limit`; a full table forgets one that `may_forget` allows.

    `may_forget` must be true only for a record that a newcomer's would equal or better, so that
    nobody gains by being forgotten (DESIGN 3.2).
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

    def put(self, client: ClientId, record: State) -> None:
        """Write the record of a client. O(1).

        Raises QueueFull when the client is new, the table full, and nobody looked at may go.
        """
        if client not in self._records and len(self._records) >= self._limit:
            self._forget_one()
        self._records[client] = record

    def _forget_one(self) -> None:
        for _ in range(_SWEEP):
            oldest = next(iter(self._records))
            record = self._records.pop(oldest)
            if self._may_forget_record(oldest, record):
                return
        raise QueueFull(f"too many clients: the table holds {self._limit}, none of them settled")

    def _may_forget_record(self, client: ClientId, record: State) -> bool:
        """Ask with the record in place; one that stays goes to the end, so the next sweep moves on."""
        self._records[client] = record
        if not self._may_forget(client):
            return False
        del self._records[client]
        return True
