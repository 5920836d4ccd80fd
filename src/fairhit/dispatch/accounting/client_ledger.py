"""Client ledger: a record per client of its requests and of the service of the finished ones.

Metrics, dashboard and admission read these records; none of them counts requests or service itself.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fairhit.core.ledgers.client_table import OTHER
from fairhit.core.request import ClientId, WorkerId
from fairhit.core.service import Service, system_view


@dataclass(kw_only=True, slots=True)
class ClientAccount:
    """Requests and service of one client, or of all clients without a name."""

    in_flight: int = 0  # arrived and not ended, waiting requests included
    requests: int = 0
    service: Service = field(default_factory=Service)  # of requests that have ended
    by_engine: dict[WorkerId, int] = field(
        default_factory=dict
    )  # the same by engine, in service tokens

    def absorb(self, other: "ClientAccount") -> None:
        """Add the numbers of `other`, except by engine."""
        self.in_flight += other.in_flight
        self.requests += other.requests
        self.service.absorb(other.service)


class ClientLedger:
    """Keeps the accounts of the first `named` clients for good, so that exported counters never decrease.

    A later client has an account while it has requests in flight; then it is added to that of OTHER.
    """

    def __init__(self, *, named: int = 1000) -> None:
        assert named >= 1, named
        self._bound = named
        self._named: dict[ClientId, ClientAccount] = {}
        self._passing: dict[ClientId, ClientAccount] = {}
        self._others = ClientAccount()
        self._reserved: dict[ClientId, int] = {}  # positive numbers only, as in the next
        self._waiting: dict[ClientId, int] = {}  # longest not served first
        self.total_waiting = 0

    # -- requests

    def reserve(self, client: ClientId) -> None:
        """Count a request that has yet to arrive. O(1)."""
        self._reserved[client] = self._reserved.get(client, 0) + 1

    def release(self, client: ClientId) -> None:
        """Remove the reservation of a request that arrives now or never will. O(1)."""
        left = self._reserved.pop(client) - 1
        assert left >= 0, client
        if left:
            self._reserved[client] = left

    def begin(self, client: ClientId) -> None:
        """Count a request that arrived. O(1)."""
        account = self._named.get(client) or self._passing.get(client)
        if account is None:
            kept = self._named if len(self._named) < self._bound else self._passing
            account = kept[client] = ClientAccount()
        account.in_flight += 1
        account.requests += 1

    def enqueued(self, client: ClientId) -> None:
        """Count a request that has to wait. O(1)."""
        self._waiting[client] = self._waiting.get(client, 0) + 1
        self.total_waiting += 1

    def dequeued(self, client: ClientId) -> None:
        """Count a waiting request no longer; the client is now the most recently served. O(1)."""
        left = self._waiting.pop(client) - 1
        if left:
            self._waiting[client] = left
        self.total_waiting -= 1
        assert self.total_waiting >= 0, client

    def end(
        self,
        client: ClientId,
        worker: WorkerId,
        *,
        extend_len: int,
        cached_len: int,
        output_len: int,
    ) -> None:
        """Add the service of a request that ended at `worker`, "" for none. O(1)."""
        account = self._named.get(client)
        is_named = account is not None
        if account is None:
            account = self._passing[client]
        account.in_flight -= 1
        assert account.in_flight >= 0, (client, account)
        service = account.service
        service.extend_len += extend_len
        service.cached_len += cached_len
        service.output_len += output_len
        if is_named:
            if extend_len:
                received = account.by_engine
                received[worker] = received.get(worker, 0) + system_view(extend_len, output_len)
        elif not account.in_flight:
            del self._passing[client]
            self._others.absorb(account)

    def forget_engine(self, worker: WorkerId) -> None:
        """Drop what clients received from an engine that was removed. O(clients)."""
        for account in self._named.values():
            account.by_engine.pop(worker, None)

    # -- questions

    def in_flight(self, client: ClientId) -> int:
        """Return the client's requests that have arrived and not ended. O(1)."""
        account = self._named.get(client) or self._passing.get(client)
        return account.in_flight if account else 0

    def reserved(self, client: ClientId) -> int:
        """Return the client's requests that have yet to arrive. O(1)."""
        return self._reserved.get(client, 0)

    def waiting(self, client: ClientId) -> int:
        """Return the client's waiting requests. O(1)."""
        return self._waiting.get(client, 0)

    def waiting_by_client(self) -> Mapping[ClientId, int]:
        """Return the waiting requests by client, longest not served first; not a copy. O(1)."""
        return self._waiting

    def received(self, client: ClientId, worker: WorkerId) -> int:
        """Return the service tokens that a client with a name received from `worker` so far. O(1)."""
        account = self._named.get(client)
        return account.by_engine.get(worker, 0) if account else 0

    def label(self, client: ClientId) -> ClientId:
        """Return the name under which the client's numbers are exported: its own, or OTHER. O(1)."""
        return client if client in self._named else OTHER

    def account(self, label: ClientId) -> ClientAccount:
        """Return the account exported under `label`. O(1); for OTHER O(clients without a name in flight)."""
        if label != OTHER:
            return self._named[label]
        rest = ClientAccount()
        rest.absorb(self._others)
        for account in self._passing.values():
            rest.absorb(account)
        if OTHER in self._named:  # a client may have that name; it then shares the label
            rest.absorb(self._named[OTHER])
        return rest

    def accounts(self) -> Iterator[tuple[ClientId, ClientAccount]]:
        """Iterate over the clients with a name, then all others as one if there are any."""
        for client, account in self._named.items():
            if client != OTHER:
                yield client, account
        rest = self.account(OTHER)
        if rest.requests:
            yield OTHER, rest
