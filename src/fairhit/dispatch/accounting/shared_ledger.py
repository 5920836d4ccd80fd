"""Shared ledger: the deficits that several gateways keep together, from what each of them reports.

    q_{i,w}   deficit of client i at engine w over all gateways, in units of service
    Q_i       quantum of client i

A round of refill runs when no client that waits for w, at any gateway, has q_{i,w} > 0: CheckRefill
of Algorithm 1 over all gateways, a few times a second instead of before every request.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from fairhit.core.request import ClientId, WorkerId

# Clients with a record at each engine; beyond that, the clients with the least debt that do not wait are
# forgotten.
MAX_CLIENTS = 4096

QuantumOf = Callable[[ClientId], int]


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerReport:
    """A gateway's report on one engine: units charged since its last report, and clients that wait."""

    charged: Mapping[ClientId, int]
    waiting: Collection[ClientId]


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerUpdate:
    """The ledger's answer on one engine: q_{i,w}, and clients that wait for it at other gateways."""

    deficits: Mapping[ClientId, int]
    elsewhere: Collection[ClientId]


@dataclass(slots=True)
class PeerGateway:
    """A gateway, as of its last report."""

    beats: int = 0  # reports so far; a gateway whose number stops has failed
    period_s: float = 0.0  # seconds between its reports
    waiting: dict[WorkerId, list[ClientId]] = field(default_factory=dict)


@dataclass(slots=True)
class SharedLedger:
    """Deficits by engine and client, and the gateways that report to them."""

    deficits: dict[WorkerId, dict[ClientId, int]] = field(default_factory=dict)
    peers: dict[str, PeerGateway] = field(default_factory=dict)

    def exchange(
        self, name: str, reports: Mapping[WorkerId, LedgerReport], quantum_of: QuantumOf
    ) -> dict[WorkerId, LedgerUpdate]:
        """Book the reports of gateway `name` and return its updates. O(clients * gateways)."""
        peer = self.peers.setdefault(name, PeerGateway())
        peer.beats += 1
        peer.waiting = {worker: list(report.waiting) for worker, report in reports.items()}
        return {
            worker: self._book(name, worker, report, quantum_of)
            for worker, report in reports.items()
        }

    def forget(self, gateways: Iterable[str]) -> None:
        """Remove gateways, and engines that no other gateway reports. What the gateways charged stays."""
        for name in gateways:
            self.peers.pop(name, None)
        used = {worker for peer in self.peers.values() for worker in peer.waiting}
        for worker in [worker for worker in self.deficits if worker not in used]:
            del self.deficits[worker]

    def _book(
        self, name: str, worker: WorkerId, report: LedgerReport, quantum_of: QuantumOf
    ) -> LedgerUpdate:
        deficits = self.deficits.setdefault(worker, {})
        for client, units in report.charged.items():
            deficits[client] = deficits.get(client, 0) - units
        elsewhere: dict[ClientId, None] = {}
        for other, peer in self.peers.items():
            if other != name:
                elsewhere.update(dict.fromkeys(peer.waiting.get(worker, ())))
        waiting = {**elsewhere, **dict.fromkeys(report.waiting)}
        # A client that was served between two reports waited for a moment.
        refill(deficits, waiting or report.charged, quantum_of)
        forget_idle(deficits, waiting)
        return LedgerUpdate(deficits=dict(deficits), elsewhere=tuple(elsewhere))


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
