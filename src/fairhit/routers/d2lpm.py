"""Double deficit longest prefix match (D2LPM): arXiv:2501.14312v1, Algorithm 2, repaired.

i: client; w: worker; W: the workers that can serve the request; Q^w: the worker quantum, of which
client i gets Q_{i,w} = w_i * Q^w; q_{i,w}: what client i may still send to w before the others must
have their share; G: the workers with the longest match; s_w: estimated tokens in flight at w.

Repairs (DESIGN 3.4, docs/explanation/paper-map.md): the refill ends, and finds its number of rounds
in closed form; the best match is sought among the available workers, and counts only from a minimum
on; ties go by work, not by requests, then by a hash of the client; the estimate charged at dispatch
is replaced by the truth at the end; a worker starts with a full quantum and leaves nothing behind.
"""

from collections import OrderedDict
from collections.abc import Collection
from typing import Literal, get_args
from zlib import crc32

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.request import ClientId, Request, WorkerId
from fairhit.core.service import UNITS_PER_TOKEN, WEIGHT_SCALE, Cost, TokenCost, Weights
from fairhit.errors import ConfigError
from fairhit.routers.in_flight_load import InFlightLoad

# What a request's prompt costs: all of it (the paper), or what the worker must compute. Charging
# cached tokens drives a client off its cache at the speed of one that has none (paper map, repair 15).
WorkerCharge = Literal["extend", "input"]


class _Account:
    """One client's counters; a worker that is in neither has a full one."""

    __slots__ = ("deficits", "spent")

    def __init__(self) -> None:
        self.deficits: dict[WorkerId, int] = {}  # q_{i,w} that are not full
        self.spent: dict[WorkerId, None] = {}  # the workers of those that are not positive


_FULL = _Account()  # of a client that has no account; never written to


class D2LPM:
    """Keeps a client where its prefixes are until it has used its share of that worker.

    A counter never exceeds its full quantum, so no credit is saved up. Counters exist for the last
    `max_clients` clients; one forgotten starts with full quanta again. That moves where its next
    requests go, never how much anybody is served: nobody waits for a q_{i,w}.
    """

    def __init__(
        self,
        *,
        quantum: int = 16384,
        weights: Weights | None = None,
        cost: Cost | None = None,
        charge: WorkerCharge = "extend",
        min_match: int = 64,
        max_clients: int = 100_000,
    ) -> None:
        if quantum < 1:
            raise ConfigError(f"worker-quantum: expected a number of tokens >= 1, got {quantum}")
        if min_match < 1:
            raise ConfigError(f"min-match: expected a number of tokens >= 1, got {min_match}")
        if charge not in get_args(WorkerCharge):
            raise ConfigError(f"worker-charge: expected extend or input, got {charge!r}")
        self._weights = weights or Weights()
        # Per millionth of a weight: exact, since a token has 10^8 units.
        self._quantum_units = quantum * UNITS_PER_TOKEN // WEIGHT_SCALE
        self._cost = cost or TokenCost()
        self._charge = charge
        self._min_match = min_match
        self._max_clients = max_clients
        self._outstanding = InFlightLoad()  # Alg. 2, line 1
        self._accounts: OrderedDict[ClientId, _Account] = OrderedDict()  # Alg. 2, line 2

    def add_worker(self, worker: WorkerId) -> None:
        """`worker` is up, with a full quantum for everyone."""
        self._outstanding.add_worker(worker)

    def remove_worker(self, worker: WorkerId) -> None:
        """`worker` is gone; so are its counters and its queue. O(clients)."""
        self._outstanding.remove_worker(worker)
        for account in self._accounts.values():
            if account.deficits.pop(worker, None) is not None:
                account.spent.pop(worker, None)

    def change_weights(self, weights: Weights) -> None:
        """Other shares from now on; a counter above its new full value is cut at its next use. O(1)."""
        self._weights = weights

    def quantum_of(self, client: ClientId) -> int:
        """Q_{i,w} in units. O(1)."""
        return self._quantum_units * self._weights.of(client)

    def deficit(self, client: ClientId, worker: WorkerId) -> int:
        """q_{i,w} in units. O(1)."""
        assert worker in self._outstanding, worker
        q = self._accounts.get(client, _FULL).deficits.get(worker)
        return self.quantum_of(client) if q is None else q

    def outstanding(self, worker: WorkerId) -> int:
        """s_w: estimated tokens in flight at `worker`. O(1)."""
        return self._outstanding.tokens(worker)

    def route(
        self,
        request: Request,
        *,
        matches: PrefixMatches,
        candidates: Collection[WorkerId] | None = None,
    ) -> WorkerId:
        """Alg. 2, lines 3-10, SelectWorker. O(levels * log workers), see `LoadOrder.least`."""
        client = request.client
        account = self._accounts.get(client, _FULL)
        least, turn = self._outstanding.order.least, crc32(client.encode())
        if not self._any_available(account, candidates):  # Alg. 2, lines 4-5
            # Alg. 2, line 6; the printed loop never looks at G_avail again.
            self._refill(client, account, candidates)
        # Alg. 2, line 7, with G taken among the available: the second-best match is not ignored.
        for length, holders in matches.by_length:
            if length < self._min_match:  # a shared first token is no reason to pile up
                break
            # Alg. 2, line 8.
            chosen = least(turn, among=holders, candidates=candidates, but=account.spent)
            if chosen is not None:
                return chosen
        chosen = least(turn, candidates=candidates, but=account.spent)  # Alg. 2, line 9
        assert chosen is not None, "no worker to choose from"
        return chosen

    def dispatch(self, request: Request, worker: WorkerId, *, extend_len: int) -> None:
        """Alg. 2, lines 16-18; the caller keeps the prefix index (line 19). O(1)."""
        self._outstanding.dispatch(request, worker, extend_len=extend_len)  # Alg. 2, line 18
        account = self._account(request.client)
        cost = self._prompt_cost(request, extend_len)
        self._pay(request.client, account, worker, cost)  # Alg. 2, line 17

    def settle(
        self, request: Request, worker: WorkerId, *, extend_len: int, output_len: int
    ) -> None:
        """Alg. 2, lines 22-24; `extend_len` 0 says that nothing was served there. O(1)."""
        served = output_len if extend_len else None
        assumed = self._outstanding.settle(request, worker, output_len=served)  # Alg. 2, line 24
        if assumed is None:
            return
        cost = -self._prompt_cost(request, assumed)  # the estimate, given back
        if extend_len:
            cost += self._prompt_cost(request, extend_len)
            cost += self._cost.decode(request.input_len, 0, output_len)  # Alg. 2, line 23
        account = self._accounts.get(request.client)
        if account is not None:  # else forgotten meanwhile, with all its counters
            self._pay(request.client, account, worker, cost)

    def _any_available(self, account: _Account, candidates: Collection[WorkerId] | None) -> bool:
        if candidates is None:
            return len(account.spent) < len(self._outstanding)
        return any(worker not in account.spent for worker in candidates)

    def _refill(
        self, client: ClientId, account: _Account, candidates: Collection[WorkerId] | None
    ) -> None:
        """As many rounds as the candidate that owes least needs to become available, at once.

        Each round gives one quantum to every worker's counter that is not positive. O(those).
        """
        quantum, q = self.quantum_of(client), account.deficits
        wanted = account.spent if candidates is None else candidates
        assert wanted, "no worker to choose from"
        rounds = min([_rounds_needed(q[worker], quantum) for worker in wanted])
        for worker in list(account.spent):
            raised = q[worker] + quantum * min(rounds, _rounds_needed(q[worker], quantum))
            self._put(account, worker, raised, quantum)

    def _pay(self, client: ClientId, account: _Account, worker: WorkerId, units: int) -> None:
        full = self.quantum_of(client)
        # An estimate given back after a refill could lift a counter above its full value.
        self._put(account, worker, min(account.deficits.get(worker, full) - units, full), full)

    @staticmethod
    def _put(account: _Account, worker: WorkerId, q: int, full: int) -> None:
        assert q <= full, (worker, q)
        if q == full:
            account.deficits.pop(worker, None)
        else:
            account.deficits[worker] = q
        if q <= 0:
            account.spent[worker] = None
        else:
            account.spent.pop(worker, None)

    def _prompt_cost(self, request: Request, extend_len: int) -> int:
        return self._cost.prefill(request.input_len if self._charge == "input" else extend_len)

    def _account(self, client: ClientId) -> _Account:
        """The client's counters, which are now the last to be forgotten. O(1)."""
        account = self._accounts.get(client)
        if account is None:
            account = self._accounts[client] = _Account()
            if len(self._accounts) > self._max_clients:
                self._accounts.popitem(last=False)
        else:
            self._accounts.move_to_end(client)
        return account


def _rounds_needed(q: int, quantum: int) -> int:
    """Quanta until `q` is positive: floor(-q / Q) + 1."""
    assert q <= 0 < quantum, (q, quantum)
    return -q // quantum + 1
