"""Double deficit longest prefix match (D2LPM): arXiv:2501.14312v1, Algorithm 2, repaired.

i: client; w: worker; W: the workers that can serve the request; Q^w: the worker quantum, of which
client i gets Q_{i,w} = w_i * Q^w; q_{i,w}: the service that client i may still send to w before its
other workers get a share; G: the workers with the longest match; s_w: estimated tokens in flight at w.

Repairs (DESIGN 3.4, docs/explanation/paper-map.md): the refill ends, and finds its number of rounds
in closed form; the best match is sought among the available workers, and counts only from a minimum
on; ties are broken by in-flight tokens, not by requests, then by a hash of the client; the estimate
charged at dispatch is replaced by the final cost; a worker starts with a full quantum, and its counters
are dropped when it is removed.

Beyond the paper, and off by default: an overdraft B^w. A prompt that w has cached to nine tenths is sent
there while q_{i,w} > -w_i * B^w and w's backlog is longer than the shortest by at most four times the match.
"""

from collections import OrderedDict
from collections.abc import Collection
from typing import Literal, get_args
from zlib import crc32

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.request import ClientId, Request, WorkerId
from fairhit.core.service import UNITS_PER_TOKEN, WEIGHT_SCALE, Cost, TokenCost, Weights
from fairhit.core.waiting.heaps import is_hit
from fairhit.errors import ConfigError
from fairhit.routers.in_flight_load import InFlightLoad

# The charge for a prompt: all its tokens (the paper), or those that the worker must compute. Charging
# cached tokens moves a client away from its cache as fast as a client without any (paper map, repair 15).
WorkerCharge = Literal["extend", "input"]
# Tokens of a longer backlog that a match is worth in the overdraft, for each token matched: with 1 a burst of
# requests for one document is split over all workers.
_WORTH = 4


class _Account:
    """Counters of one client; the counter of a worker that is in neither is full."""

    __slots__ = ("deficits", "spent")

    def __init__(self) -> None:
        self.deficits: dict[WorkerId, int] = {}  # the counters q_{i,w} that are not full
        self.spent: dict[WorkerId, None] = {}  # workers whose counter is not positive


_FULL = _Account()  # stands for a client without an account; never written to


class D2LPM:
    """Keeps a client where its prefixes are until it has used its share of that worker.

    A counter never exceeds its full quantum, so no credit is saved up. Counters exist for the last
    `max_clients` clients; a forgotten client starts with full quanta again. That changes where its next
    requests are sent, never how much a client is served: no request waits for a q_{i,w}.

    `quantum`, `overdraft` and `min_match` are in tokens. Raises ConfigError for a value below 1 (of the
    overdraft: below 0) or an unknown `charge`.
    """

    def __init__(
        self,
        *,
        quantum: int = 16384,
        weights: Weights | None = None,
        cost: Cost | None = None,
        charge: WorkerCharge = "extend",
        overdraft: int = 0,
        min_match: int = 64,
        max_clients: int = 100_000,
    ) -> None:
        if quantum < 1:
            raise ConfigError(f"worker-quantum: expected a number of tokens >= 1, got {quantum}")
        if min_match < 1:
            raise ConfigError(f"min-match: expected a number of tokens >= 1, got {min_match}")
        if overdraft < 0:
            raise ConfigError(
                f"worker-overdraft: expected a number of tokens >= 0, got {overdraft}"
            )
        if charge not in get_args(WorkerCharge):
            raise ConfigError(f"worker-charge: expected extend or input, got {charge!r}")
        self._weights = weights or Weights()
        # Per millionth of a weight: exact, since a token has 10^8 units.
        self._quantum_units = quantum * UNITS_PER_TOKEN // WEIGHT_SCALE
        self._overdraft_units = overdraft * UNITS_PER_TOKEN // WEIGHT_SCALE
        self._cost = cost or TokenCost()
        self._charge = charge
        self._min_match = min_match
        self._max_clients = max_clients
        self.load = InFlightLoad()  # Alg. 2, line 1
        self._accounts: OrderedDict[ClientId, _Account] = OrderedDict()  # Alg. 2, line 2

    def add_worker(self, worker: WorkerId) -> None:
        """Add `worker`, with a full quantum for every client."""
        self.load.add_worker(worker)

    def remove_worker(self, worker: WorkerId) -> None:
        """Remove `worker`, its counters and its in-flight load. O(clients)."""
        self.load.remove_worker(worker)
        for account in self._accounts.values():
            if account.deficits.pop(worker, None) is not None:
                account.spent.pop(worker, None)

    def change_weights(self, weights: Weights) -> None:
        """Change the weights; a counter above its new full value is cut at its next use. O(1)."""
        self._weights = weights

    def quantum_of(self, client: ClientId) -> int:
        """Return Q_{i,w} in units. O(1)."""
        return self._quantum_units * self._weights.of(client)

    def deficit(self, client: ClientId, worker: WorkerId) -> int:
        """Return q_{i,w} in units. O(1)."""
        assert worker in self.load, worker
        q = self._accounts.get(client, _FULL).deficits.get(worker)
        return self.quantum_of(client) if q is None else q

    def route(
        self,
        request: Request,
        *,
        matches: PrefixMatches,
        candidates: Collection[WorkerId] | None = None,
    ) -> WorkerId:
        """Alg. 2, lines 3-10, SelectWorker. O(match lengths * log workers), see `LoadOrder.least`."""
        client = request.client
        account = self._accounts.get(client, _FULL)
        least, rotation = self.load.order.least, crc32(client.encode())
        if not self._any_available(account, candidates):  # Alg. 2, lines 4-5
            # Alg. 2, line 6; the printed loop never looks at G_avail again.
            self._refill(client, account, candidates)
        if self._overdraft_units:
            chosen = self._overdrawn(request, account, matches, candidates)
            if chosen is not None:
                return chosen
        # Alg. 2, line 7, with G taken among the available: the second-best match is not ignored.
        for length, holders in matches.by_length:
            if length < self._min_match:  # a few shared tokens are no reason to overload a worker
                break
            # Alg. 2, line 8.
            chosen = least(rotation, among=holders, candidates=candidates, but=account.spent)
            if chosen is not None:
                return chosen
        chosen = least(rotation, candidates=candidates, but=account.spent)  # Alg. 2, line 9
        assert chosen is not None, "no worker to choose from"
        return chosen

    def dispatch(self, request: Request, worker: WorkerId, *, extend_len: int) -> None:
        """Alg. 2, lines 16-18: charge the estimate; the caller keeps the prefix index (line 19). O(1)."""
        self.load.dispatch(request, worker, extend_len=extend_len)  # Alg. 2, line 18
        account = self._account(request.client)
        cost = self._prompt_cost(request, extend_len)
        self._pay(request.client, account, worker, cost)  # Alg. 2, line 17

    def true_up(
        self, request: Request, worker: WorkerId, *, extend_len: int, output_len: int
    ) -> None:
        """Alg. 2, lines 22-24: replace the estimate by the final cost, 0 for nothing served. O(1)."""
        served = output_len if extend_len else None
        assumed = self.load.remove(request, worker, output_len=served)  # Alg. 2, line 24
        if assumed is None:
            return
        cost = -self._prompt_cost(request, assumed)  # refunds the estimate
        if extend_len:
            cost += self._prompt_cost(request, extend_len)
            cost += self._cost.decode(request.input_len, 0, output_len)  # Alg. 2, line 23
        account = self._accounts.get(request.client)
        if account is not None:  # else its counters were forgotten meanwhile
            self._pay(request.client, account, worker, cost)

    def _any_available(self, account: _Account, candidates: Collection[WorkerId] | None) -> bool:
        if candidates is None:
            return len(account.spent) < len(self.load)
        return any(worker not in account.spent for worker in candidates)

    def _overdrawn(
        self,
        request: Request,
        account: _Account,
        matches: PrefixMatches,
        candidates: Collection[WorkerId] | None,
    ) -> WorkerId | None:
        """Return the worker that has nearly all of the prompt cached, though q_{i,w} may be spent there.

        None if there is none, the overdraft is used up, or its backlog is too long for what the match saves.
        """
        length, holders = matches.by_length[0] if matches.by_length else (0, ())
        if length < self._min_match or not is_hit(request, length):
            return None
        least, rotation = self.load.order.least, crc32(request.client.encode())
        lowest = -self._overdraft_units * self._weights.of(request.client)
        beyond = [worker for worker in account.spent if account.deficits[worker] <= lowest]
        chosen = least(rotation, among=holders, candidates=candidates, but=beyond)
        idlest = least(rotation, candidates=candidates)
        if chosen is None or idlest is None:
            return None
        longer = self.load.tokens(chosen) - self.load.tokens(idlest)
        return chosen if longer <= _WORTH * length else None

    def _refill(
        self, client: ClientId, account: _Account, candidates: Collection[WorkerId] | None
    ) -> None:
        """Run at once as many rounds of refill as make the candidate with the smallest debt available.

        Each round adds one quantum to every counter of the client that is not positive. O(those counters).
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
        """Return the client's counters, now the last to be forgotten. O(1)."""
        account = self._accounts.get(client)
        if account is None:
            account = self._accounts[client] = _Account()
            if len(self._accounts) > self._max_clients:
                self._accounts.popitem(last=False)
        else:
            self._accounts.move_to_end(client)
        return account


def _rounds_needed(q: int, quantum: int) -> int:
    """Return the number of quanta that make `q` positive: floor(-q / Q) + 1."""
    assert q <= 0 < quantum, (q, quantum)
    return -q // quantum + 1
