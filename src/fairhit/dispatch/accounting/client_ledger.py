"""What each client has in flight and what it has received, with a bound on the clients kept by name."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from fairhit.core.client_table import OTHER
from fairhit.core.request import ClientId
from fairhit.core.service import Service


@dataclass(kw_only=True, slots=True)
class ClientAccount:
    """One client's requests and service."""

    in_flight: int = 0
    requests: int = 0
    service: Service = field(default_factory=Service)

    def absorb(self, other: "ClientAccount") -> None:
        """Add what `other` had."""
        self.in_flight += other.in_flight
        self.requests += other.requests
        self.service.absorb(other.service)


class ClientLedger:
    """The first `named` clients keep their account for good, so that their counters never go back.

    Later ones have one while they have requests in flight; then it is summed up under OTHER.
    """

    def __init__(self, *, named: int = 1000) -> None:
        assert named >= 1, named
        self._bound = named
        self._named: dict[ClientId, ClientAccount] = {}
        self._passing: dict[ClientId, ClientAccount] = {}
        self._others = ClientAccount()

    def in_flight(self, client: ClientId) -> int:
        """How many requests of `client` have begun and not ended. O(1)."""
        account = self._named.get(client) or self._passing.get(client)
        return account.in_flight if account else 0

    def begin(self, client: ClientId) -> None:
        """`client` has one more request in flight. O(1)."""
        account = self._named.get(client) or self._passing.get(client)
        if account is None:
            kept = self._named if len(self._named) < self._bound else self._passing
            account = kept[client] = ClientAccount()
        account.in_flight += 1
        account.requests += 1

    def end(self, client: ClientId, *, extend_len: int, cached_len: int, output_len: int) -> None:
        """One of its requests ended, having received this much. O(1)."""
        account = self._named.get(client) or self._passing[client]
        account.in_flight -= 1
        assert account.in_flight >= 0, (client, account)
        account.service.extend_len += extend_len
        account.service.cached_len += cached_len
        account.service.output_len += output_len
        if not account.in_flight and client in self._passing:
            del self._passing[client]
            self._others.absorb(account)

    def label(self, client: ClientId) -> ClientId:
        """The name its numbers are told under: its own, or OTHER. O(1)."""
        return client if client in self._named else OTHER

    def account(self, label: ClientId) -> ClientAccount:
        """What is told under `label`. O(1), but for OTHER O(those without a name that are in flight)."""
        if label != OTHER:
            return self._named[label]
        rest = ClientAccount()
        rest.absorb(self._others)
        for account in self._passing.values():
            rest.absorb(account)
        if OTHER in self._named:  # a client may really be called that; it then shares the label
            rest.absorb(self._named[OTHER])
        return rest

    def accounts(self) -> Iterator[tuple[ClientId, ClientAccount]]:
        """The clients kept by name, then all the others as one if there are any."""
        for client, account in self._named.items():
            if client != OTHER:
                yield client, account
        rest = self.account(OTHER)
        if rest.requests:
            yield OTHER, rest
