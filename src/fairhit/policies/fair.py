"""`fair`: DLPM with what it consumes for a charge. The box: docs/explanation/fair.md, Algorithm 3.

    q_i   deficit of client i: cost it may still cause before the next refill (core/ledgers/overdraft.py)
    Q_i   quantum of client i, w_i * Q^u
    d_i   q_i right after the charge that took it from positive to not positive
    B_i   overdraft of client i, w_i * B^u: prompts that are nine tenths cached are admitted while
          q_i > d_i - B_i
    h     the cost of a request in engine time (core/costs.py, `ContextCost`)

What differs from Algorithm 1: (a) expected outputs beyond an allowance are charged at admission and
corrected at the end; (b) the overdraft; (c) among nearly equal matches the client with the largest
q_i / Q_i is first; (d) the cache evicts what waiting prompts want last; (e) the small quantum.
"""

from fairhit.core.costs import ENGINE
from fairhit.core.ledgers.expected_outputs import ExpectedOutputs, PrepaidOutputs, UnpaidOutputs
from fairhit.core.ledgers.overdraft import OverdraftDeficits, Standing
from fairhit.core.request import ClientId, Request
from fairhit.core.service import UNITS_PER_TOKEN, Cost, ServiceCost, Weights, parse_tokens
from fairhit.core.waiting.aging import PrefixOrder
from fairhit.core.waiting.cache_listener import AnyCache
from fairhit.errors import ConfigError

# Outputs expected of a client none of whose requests has finished. With 0 it could fill all slots with
# long contexts before any of them costs anything.
FIRST_OUTPUTS = 256

# Tokens of cost that the expected outputs of a client's running requests may add up to before those of the
# next one are charged at admission. Less makes bursts of light clients wait; with no limit a client with
# long contexts is served for the length of its outputs before any debt shows.
UNPAID = 65_536


class Fair:
    """Longest cached prefix first among the clients that are due, in engine time.

    `quantum`, `overdraft` and `near` are in tokens: Q^u, B^u, and the step within which matches count as
    equal. `eviction` "wanted-last": the cache evicts what waiting prompts want after all else, if it can;
    "lru": as without. `prepay` "expected": expected outputs beyond UNPAID are charged at admission; "none":
    each output is charged when it is emitted. `overdraft` 0 and `near` 1 turn those off.
    """

    def __init__(
        self,
        *,
        cache: AnyCache,
        quantum: int = 1024,
        overdraft: int | None = None,
        near: int = 256,
        eviction: str = "wanted-last",
        prepay: str = "expected",
        cost: Cost | None = None,
        weights: Weights | None = None,
        charge: str = "extend",
        max_overtake: int | None = None,
        max_clients: int = 1_000_000,
    ) -> None:
        self.cost = ServiceCost(cost or ENGINE, charge=charge)
        self.ledger = self._make_ledger(
            quantum=quantum,
            overdraft=min(1024, quantum) if overdraft is None else overdraft,
            weights=weights,
            max_clients=max_clients,
        )
        self._queue = PrefixOrder(
            cache,
            max_overtake=max_overtake,
            near=parse_tokens(near, least=1, where="near"),
            standing=self.ledger.place,
            keeps_wanted=_one_of("eviction", eviction, ("wanted-last", "lru")) == "wanted-last",
        )
        self._expected = ExpectedOutputs(max_clients=max_clients, first=FIRST_OUTPUTS)
        prepays = _one_of("prepay", prepay, ("expected", "none")) == "expected"

        self._unpaid = UnpaidOutputs(self._expected.of, self.cost, limit=UNPAID * UNITS_PER_TOKEN)
        expect = self._unpaid.to_prepay if prepays else _expect_none
        self._prepaid = PrepaidOutputs(self.ledger, self.cost, expect)

    def add(self, request: Request) -> None:
        """Enqueue; a new client starts at q_i = 0, others keep debt and credit."""
        joins = not self._queue.count(request.client)
        if joins:
            self.ledger.join(request.client)
        self._queue.add(request)
        if joins:
            self._place(request.client, self.ledger.standing(request.client))

    def remove(self, request: Request) -> None:
        """Dequeue; a client without schedulable requests has no part in a refill."""
        self._queue.remove(request)
        if not self._queue.count(request.client):
            self.ledger.leave(request.client)

    def begin_pass(self) -> None:
        """Charge all outputs emitted so far; the next walk considers every request again."""
        self.ledger.sync(None)
        self._queue.show_all()

    def next(self) -> Request | None:
        """Return the best match of the clients that are due; refill when no waiting client has q_i > 0."""
        while True:
            request = self._queue.best()
            if request is not None or not self.ledger.check_refill():
                return request
            self.cost.refresh()

    def skip(self, request: Request) -> None:
        """Leave out a request that does not fit; its client keeps what it has."""
        self._queue.hide(request)

    def on_admit(self, request: Request, *, extend_len: int) -> None:
        """Charge the computed part of the prompt and what is to be prepaid, in one sum."""
        units = self.cost.prompt(request.input_len, extend_len)
        self._queue.admitted(request, units)
        self.remove(request)  # whereby the queue reads the client's place anew
        self.ledger.charge(request.client, units + self._prepaid.expect(request), placed=True)

    def on_decode(self, request: Request, *, before: int, tokens: int) -> None:
        """Charge what exceeds the expected outputs."""
        self._prepaid.on_decode(request, before=before, tokens=tokens)

    def on_end(self, request: Request, *, output_len: int, finished: bool) -> None:
        """Give back what was expected and not emitted."""
        self._prepaid.on_end(request, output_len)
        self._unpaid.on_end(request)
        if finished:
            self._expected.finished(request.client, output_len)

    def credit(self, client: ClientId) -> int:
        """Return q_i in units."""
        return self.ledger.value(client)

    def _make_ledger(
        self, *, quantum: int, overdraft: int, weights: Weights | None, max_clients: int
    ) -> OverdraftDeficits:
        """Return the ledger of q_i and d_i; hosts that share one have another class."""
        return OverdraftDeficits(
            quantum=quantum,
            overdraft=overdraft,
            on_change=self._place,
            weights=weights,
            max_clients=max_clients,
        )

    def _place(self, client: ClientId, standing: Standing) -> None:
        """Open or close the client's requests by its deficit, and place it among the others."""
        if standing is Standing.OPEN:
            self._queue.open(client)
        elif standing is Standing.HITS:
            self._queue.open_for_hits(client)
        else:
            self._queue.close(client)


def _one_of(setting: str, value: str, choices: tuple[str, ...]) -> str:
    """Return `value`. Raises ConfigError unless it is one of `choices`."""
    if value not in choices:
        raise ConfigError(f"{setting}: expected one of {', '.join(choices)}, got {value!r}")
    return value


def _expect_none(_: Request) -> int:
    """Expect no outputs: each is charged when it is emitted."""
    return 0
