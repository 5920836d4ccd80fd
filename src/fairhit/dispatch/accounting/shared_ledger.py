"""The account that several gateways keep together: each tells it what it charged, and learns what all did.

    q_{i,w}   deficit of client i at engine w over all gateways, in units of service
    Q_i       its quantum

A round of refill runs when nobody who waits for w, at any gateway, has q_{i,w} > 0: that is CheckRefill
of Algorithm 1 over all gateways, a few times a second instead of before every request.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from fairhit.core.request import ClientId, WorkerId

# Clients with a record for each engine: beyond, who owes least and does not wait is forgotten.
MAX_CLIENTS = 4096

QuantumOf = Callable[[ClientId], int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What one gateway tells of one engine: units charged since it was last told, and who waits for it."""

    charged: Mapping[ClientId, int]
    waiting: Collection[ClientId]


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerUpdate:
    """What a gateway hears of one engine: q_{i,w}, and who waits for it at other gateways."""

    deficits: Mapping[ClientId, int]
    elsewhere: Collection[ClientId]


@dataclass(slots=True)
class Peer:
    """A gateway, as of its last report."""

    beats: int = 0  # reports so far: one that stands still is gone
    period_s: float = 0.0  # from one to the next, by what its last cost
    waiting: dict[WorkerId, list[ClientId]] = field(default_factory=dict)


@dataclass(slots=True)
class Accounts:
    """Deficits by engine and client, and the gateways that keep them."""

    deficits: dict[WorkerId, dict[ClientId, int]] = field(default_factory=dict)
    peers: dict[str, Peer] = field(default_factory=dict)

    def exchange(
        self, name: str, reports: Mapping[WorkerId, Report], quantum_of: QuantumOf
    ) -> dict[WorkerId, LedgerUpdate]:
        """Book what the gateway `name` tells, and say how everybody stands. O(clients * gateways)."""
        peer = self.peers.setdefault(name, Peer())
        peer.beats += 1
        peer.waiting = {worker: list(report.waiting) for worker, report in reports.items()}
        return {
            worker: self._book(name, worker, report, quantum_of)
            for worker, report in reports.items()
        }

    def forget(self, gateways: Iterable[str]) -> None:
        """These are gone: nobody waits there. What they charged stays, and engines no other has do not."""
        for name in gateways:
            self.peers.pop(name, None)
        used = {worker for peer in self.peers.values() for worker in peer.waiting}
        for worker in [worker for worker in self.deficits if worker not in used]:
            del self.deficits[worker]

    def _book(
        self, name: str, worker: WorkerId, report: Report, quantum_of: QuantumOf
    ) -> LedgerUpdate:
        deficits = self.deficits.setdefault(worker, {})
        for client, units in report.charged.items():
            deficits[client] = deficits.get(client, 0) - units
        elsewhere: dict[ClientId, None] = {}
        for other, peer in self.peers.items():
            if other != name:
                elsewhere.update(dict.fromkeys(peer.waiting.get(worker, ())))
        waiting = {**elsewhere, **dict.fromkeys(report.waiting)}
        # Who was served without being seen to wait, waited for a moment.
        refill(deficits, waiting or report.charged, quantum_of)
        forget_settled(deficits, waiting)
        return LedgerUpdate(deficits=dict(deficits), elsewhere=tuple(elsewhere))


def refill(
    deficits: dict[ClientId, int], waiting: Collection[ClientId], quantum_of: QuantumOf
) -> None:
    """Alg. 1, CheckRefill: as many rounds as the first who waits needs, if all of them are out of q_i.

    A round gives Q_i to every client with q_i <= 0. O(clients).
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


def forget_settled(deficits: dict[ClientId, int], waiting: Collection[ClientId]) -> None:
    """Drop whose record a newcomer's 0 would equal, and beyond a bound who owes least. O(clients)."""
    for client in [one for one, q in deficits.items() if q >= 0 and one not in waiting]:
        del deficits[client]
    if len(deficits) > MAX_CLIENTS:
        idle = sorted((-q, client) for client, q in deficits.items() if client not in waiting)
        for _, client in idle[: len(deficits) - MAX_CLIENTS]:
            del deficits[client]
