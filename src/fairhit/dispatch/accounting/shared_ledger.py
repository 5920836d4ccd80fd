"""Shared ledger: the deficits that several gateways keep together, from what each of them reports.

    q_i   deficit of client i over all gateways and engines, in units of service
    Q_i   quantum of client i

A round of refill runs when no client that waits, at any gateway, has q_i > 0: CheckRefill of Algorithm 1
over all gateways, a few times a second instead of before every request.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from fairhit.core.ledgers.shared_deficits import Engines
from fairhit.core.request import ClientId

# Clients with a record; beyond that, the clients with the least debt that do not wait are forgotten.
MAX_CLIENTS = 4096

QuantumOf = Callable[[ClientId], int]
# Clients that wait, by the engines that their requests may take; no engines: any of the fleet.
Waiting = Mapping[Engines, Collection[ClientId]]


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerReport:
    """A gateway's report: units charged since its last report, and clients that wait."""

    charged: Mapping[ClientId, int]
    waiting: Waiting


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerUpdate:
    """The ledger's answer: q_i, and clients that wait at other gateways."""

    deficits: Mapping[ClientId, int]
    elsewhere: Waiting


@dataclass(slots=True)
class PeerGateway:
    """A gateway, as of its last report."""

    beats: int = 0  # reports so far; a gateway whose number stops has failed
    period_s: float = 0.0  # seconds between its reports
    waiting: list[tuple[Engines, list[ClientId]]] = field(default_factory=list)


@dataclass(slots=True)
class SharedLedger:
    """The clients' deficits, and the gateways that report to them."""

    deficits: dict[ClientId, int] = field(default_factory=dict)
    peers: dict[str, PeerGateway] = field(default_factory=dict)

    def exchange(self, name: str, report: LedgerReport, quantum_of: QuantumOf) -> LedgerUpdate:
        """Book the report of gateway `name` and return its update. O(clients * gateways)."""
        peer = self.peers.setdefault(name, PeerGateway())
        peer.beats += 1
        peer.waiting = [(engines, list(clients)) for engines, clients in report.waiting.items()]
        for client, units in report.charged.items():
            self.deficits[client] = self.deficits.get(client, 0) - units
        elsewhere: dict[Engines, dict[ClientId, None]] = {}
        for other, peer in self.peers.items():
            if other != name:
                for engines, clients in peer.waiting:
                    elsewhere.setdefault(engines, {}).update(dict.fromkeys(clients))
        waiting = dict.fromkeys(
            client
            for clients in (*elsewhere.values(), *report.waiting.values())
            for client in clients
        )
        # A client that was served between two reports waited for a moment.
        refill(self.deficits, waiting or report.charged, quantum_of)
        forget_idle(self.deficits, waiting)
        return LedgerUpdate(
            deficits=dict(self.deficits),
            elsewhere={engines: tuple(clients) for engines, clients in elsewhere.items()},
        )

    def forget(self, gateways: Iterable[str]) -> None:
        """Remove gateways. What they charged stays."""
        for name in gateways:
            self.peers.pop(name, None)


def refill(
    deficits: dict[ClientId, int], waiting: Collection[ClientId], quantum_of: QuantumOf
) -> None:
    """Alg. 1, CheckRefill: if no waiting client has q_i > 0, run rounds until one has.

    A round adds Q_i to every client with q_i <= 0. O(clients).
    """
    if not waiting or any(deficits.get(client, 0) > 0 for client in waiting):
        return
    needed = {
        client: -q // quantum_of(client) + 1
        for client, q in ({**dict.fromkeys(waiting, 0), **deficits}).items()
        if q <= 0
    }
    rounds = min(needed[client] for client in waiting)
    for client, own in needed.items():
        deficits[client] = deficits.get(client, 0) + quantum_of(client) * min(rounds, own)


def forget_idle(deficits: dict[ClientId, int], waiting: Collection[ClientId]) -> None:
    """Drop idle clients without debt, whose records equal a newcomer's; beyond a bound those with least debt.

    O(clients).
    """
    for client in [one for one, q in deficits.items() if q >= 0 and one not in waiting]:
        del deficits[client]
    if len(deficits) > MAX_CLIENTS:
        idle = sorted((-q, client) for client, q in deficits.items() if client not in waiting)
        for _, client in idle[: len(deficits) - MAX_CLIENTS]:
            del deficits[client]
