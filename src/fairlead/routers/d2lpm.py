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
from collections.abc import Collection, Mapping
from typing import Literal, get_args
from zlib import crc32

from fairlead.core.request import ClientId, Request, WorkerId
from fairlead.core.service import UNITS_PER_TOKEN, WEIGHT_SCALE, Cost, TokenCost, Weights
from fairlead.errors import ConfigError
from fairlead.routers.outstanding import Outstanding

# What a request's prompt costs: all of it (the paper), or what the worker must compute. Charging
# cached tokens drives a client off its cache at the speed of one that has none (paper map, repair 15).
WorkerCharge = Literal["extend", "input"]


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
        self._outstanding = Outstanding()  # Alg. 2, line 1
        # q_{i,w}, by worker so that a lost one takes its counters along; absent means full.
        self._deficits: dict[WorkerId, dict[ClientId, int]] = {}  # Alg. 2, line 2
        self._recent: OrderedDict[ClientId, None] = OrderedDict()

    def add_worker(self, worker: WorkerId) -> None:
        """`worker` is up, with a full quantum for everyone."""
        self._outstanding.add_worker(worker)
        self._deficits[worker] = {}

    def remove_worker(self, worker: WorkerId) -> None:
        """`worker` is gone; so are its counters and its queue. O(1)."""
        self._outstanding.remove_worker(worker)
        del self._deficits[worker]

    def quantum_of(self, client: ClientId) -> int:
        """Q_{i,w} in units. O(1)."""
        return self._quantum_units * self._weights.of(client)

    def deficit(self, client: ClientId, worker: WorkerId) -> int:
        """q_{i,w} in units. O(1)."""
        return self._deficits[worker].get(client, self.quantum_of(client))

    def outstanding(self, worker: WorkerId) -> int:
        """s_w: estimated tokens in flight at `worker`. O(1)."""
        return self._outstanding.tokens(worker)

    def route(self, request: Request, *, matched: Mapping[WorkerId, int]) -> WorkerId:
        """Alg. 2, lines 3-10, SelectWorker. O(workers)."""
        assert matched, "no worker to choose from"
        client = request.client
        available = self._available(client, matched)  # Alg. 2, line 4
        if not available:  # Alg. 2, line 5
            self._refill(client, matched)  # Alg. 2, line 6
            available = self._available(client, matched)  # the printed loop never looks again
        # Alg. 2, line 7, with G taken among the available: the second-best match is not ignored.
        best = max([matched[worker] for worker in available])
        if best >= self._min_match:  # a shared first token is no reason to pile up
            available = [worker for worker in available if matched[worker] == best]
        chosen = available[0]
        if len(available) > 1:
            chosen = min(available, key=lambda w: self._rank(client, w))  # Alg. 2, lines 8-9
        assert self.deficit(client, chosen) > 0, (client, chosen)
        return chosen

    def dispatch(self, request: Request, worker: WorkerId, *, extend_len: int) -> None:
        """Alg. 2, lines 16-18; the caller keeps the prefix index (line 19). O(1)."""
        self._outstanding.dispatch(request, worker, extend_len=extend_len)  # Alg. 2, line 18
        self._remember(request.client)
        self._pay(request.client, worker, self._prompt_cost(request, extend_len))  # Alg. 2, line 17

    def settle(
        self, request: Request, worker: WorkerId, *, extend_len: int, output_len: int
    ) -> None:
        """Alg. 2, lines 22-24; `extend_len` 0 says that nothing was served there. O(1)."""
        served = output_len if extend_len else None
        sent = self._outstanding.settle(request, worker, output_len=served)  # Alg. 2, line 24
        if sent is None:
            return
        cost = -self._prompt_cost(request, sent.extend_len)  # the estimate, given back
        if extend_len:
            cost += self._prompt_cost(request, extend_len)
            cost += self._cost.decode(request.input_len, 0, output_len)  # Alg. 2, line 23
        if request.client in self._recent:  # else forgotten meanwhile, with all its counters
            self._pay(request.client, worker, cost)

    def _available(self, client: ClientId, workers: Collection[WorkerId]) -> list[WorkerId]:
        full, deficits = self.quantum_of(client), self._deficits
        return [worker for worker in workers if deficits[worker].get(client, full) > 0]

    def _refill(self, client: ClientId, candidates: Collection[WorkerId]) -> None:
        """As many rounds as the candidate that owes least needs to become available, at once.

        Each round gives one quantum to every worker's counter that is not positive.
        """
        quantum = self.quantum_of(client)
        rounds = min(_rounds_needed(self.deficit(client, w), quantum) for w in candidates)
        for worker in self._deficits:
            q = self.deficit(client, worker)
            if q <= 0:
                raised = q + quantum * min(rounds, _rounds_needed(q, quantum))
                self._deficits[worker][client] = raised

    def _pay(self, client: ClientId, worker: WorkerId, units: int) -> None:
        full, counters = self.quantum_of(client), self._deficits[worker]
        # An estimate given back after a refill could lift a counter above its full value.
        counters[client] = min(counters.get(client, full) - units, full)

    def _prompt_cost(self, request: Request, extend_len: int) -> int:
        return self._cost.prefill(request.input_len if self._charge == "input" else extend_len)

    def _rank(self, client: ClientId, worker: WorkerId) -> tuple[int, int, WorkerId]:
        """Least work first; equals differ by client, or idle workers would all be asked in turn."""
        return self._outstanding.tokens(worker), crc32(f"{client}\0{worker}".encode()), worker

    def _remember(self, client: ClientId) -> None:
        """Keep the counters of the clients that came last, and of no more than the bound."""
        self._recent[client] = None
        self._recent.move_to_end(client)
        if len(self._recent) > self._max_clients:
            forgotten, _ = self._recent.popitem(last=False)
            for counters in self._deficits.values():
                counters.pop(forgotten, None)


def _rounds_needed(q: int, quantum: int) -> int:
    """Quanta until `q` is positive: floor(-q / Q) + 1."""
    assert q <= 0 < quantum, (q, quantum)
    return -q // quantum + 1
