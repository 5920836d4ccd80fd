"""The interfaces around a policy: what it must offer, what it may offer, and what routers offer.

A *policy* is one algorithm: which waiting request is next, and what serving it costs. An engine never
calls a policy directly: `fairhit.core.fair_queue.FairQueue` stands in between and does what is the
same for all of them (preempted requests first, blocked requests left out, nothing charged twice).
Policies are synchronous and pure: no clock, no I/O, no environment.
"""

from collections.abc import Callable, Collection
from typing import Protocol, TypeAlias, runtime_checkable

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.request import ClientId, Request, WorkerId
from fairhit.core.service import ServiceCost


class Policy(Protocol):
    """Order of the waiting requests that could be admitted now, memory apart."""

    def add(self, request: Request) -> None:
        """Insert a waiting request. Raises QueueFull if no record of its client can be kept."""
        ...

    def remove(self, request: Request) -> None:
        """Remove a request that is no longer waiting or was blocked; nothing is charged."""
        ...

    def begin_pass(self) -> None:
        """Begin a scheduling pass: requests skipped in the last one count again."""
        ...

    def next(self) -> Request | None:
        """Return the request to admit now, which stays waiting; a second call returns the same."""
        ...

    def skip(self, request: Request) -> None:
        """Leave out the request just returned, which does not fit, for the rest of the pass."""
        ...


@runtime_checkable
class Charging(Protocol):
    """A policy whose order depends on the service that clients have received."""

    def on_admit(self, request: Request, *, extend_len: int) -> None:
        """Remove an admitted request and charge its prompt, `extend_len` tokens of it computed."""
        ...

    def on_decode(self, request: Request, *, before: int, tokens: int) -> None:
        """Charge `tokens` more outputs after the request's first `before`."""
        ...

    def credit(self, client: ClientId) -> int:
        """Return the client's standing in units; the client with the least is preempted first."""
        ...


@runtime_checkable
class Refunding(Protocol):
    """A policy that charges in advance, and gives back what was not used when a request ends."""

    def on_end(self, request: Request, *, output_len: int, finished: bool) -> None:
        """Close the accounts of an admitted request, finished or cancelled after `output_len` outputs."""
        ...


# Charges the pending outputs of one client, or of all for None.
SyncCharges: TypeAlias = Callable[[ClientId | None], None]


def nothing_pending(client: ClientId | None) -> None:
    """Do nothing: `Ledger.sync` until a queue sets it; every output is charged when it is reported."""


class Ledger(Protocol):
    """The counters of a policy. They call `sync` before a decision depends on them.

    So a simulated engine may report outputs in O(1) for its whole batch, and they are charged only
    when the policy needs to know.
    """

    sync: SyncCharges
    # Units charged to each client, less those given back, for a host that takes them out now and then;
    # None: not collected.
    charges: dict[ClientId, int] | None

    def replace(self, client: ClientId, *, charged: int, true: int) -> None:
        """Replace an earlier charge by the true cost, both in units before weighting."""
        ...


@runtime_checkable
class KeepsLedger(Protocol):
    """A policy whose charges are kept in a ledger, and can be corrected there."""

    @property
    def ledger(self) -> Ledger:
        """The counters that the policy's decisions depend on."""
        ...

    @property
    def cost(self) -> ServiceCost:
        """The price of prompts and outputs."""
        ...


class Router(Protocol):
    """Chooses the worker of each request (Algorithm 2).

    For each request the host calls `route`, then `dispatch`, and at the end `true_up`.
    """

    def add_worker(self, worker: WorkerId) -> None:
        """Add `worker`, which is up and accepts requests."""
        ...

    def remove_worker(self, worker: WorkerId) -> None:
        """Remove `worker` with all counters of it; a later `true_up` of its requests changes nothing."""
        ...

    def route(
        self,
        request: Request,
        *,
        matches: PrefixMatches,
        candidates: Collection[WorkerId] | None = None,
    ) -> WorkerId:
        """Return the worker for `request` among `candidates`, None for all workers that are up.

        `matches` lists the prompt tokens that each worker has cached. `candidates` is not empty, contains
        only workers that are up, and answers `in` in O(1).
        """
        ...

    def dispatch(self, request: Request, worker: WorkerId, *, extend_len: int) -> None:
        """Charge `request` to `worker`, which must compute about `extend_len` of its prompt tokens."""
        ...

    def true_up(
        self, request: Request, worker: WorkerId, *, extend_len: int, output_len: int
    ) -> None:
        """Replace the estimated charge of `request` by its final cost; 0, 0 refunds it."""
        ...


@runtime_checkable
class Timed(Protocol):
    """A router that also takes the measured times of requests, where they are known."""

    def served(
        self, request: Request, worker: WorkerId, *, first_us: int, end_us: int, output_len: int
    ) -> None:
        """Record when the first and the last output were emitted; `true_up` is called next."""
        ...
