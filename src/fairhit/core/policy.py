"""The seams: what a policy must offer and what a host may call.

A *policy* (floor 2) is one algorithm: who is next, and what it costs. A *host* (simulator, engine
plug-in, gateway) never talks to a policy directly: `fairhit.core.fair_queue.FairQueue` stands
between them and does what is the same for every policy (preempted requests first, held requests
aside, nothing paid twice). All of it is synchronous and pure: no clock, no I/O (DESIGN 4).
"""

from collections.abc import Callable, Collection, Mapping
from typing import Protocol, runtime_checkable

from fairhit.core.cache.block_set import BlockCache
from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.request import ClientId, Request, WorkerId
from fairhit.core.request_record import Prompt


class Ordering(Protocol):
    """A policy's first half: who is next among the requests that could be admitted now."""

    def add(self, request: Request) -> None:
        """`request` is waiting and schedulable: memory apart, it could be admitted now."""
        ...

    def remove(self, request: Request) -> None:
        """`request` is no longer waiting or no longer schedulable; nothing is charged."""
        ...

    def begin(self) -> None:
        """A new look begins: what the last one passed over counts again."""
        ...

    def next(self) -> Request | None:
        """The request to admit now. It stays waiting; asking again gives the same answer."""
        ...

    def pass_over(self, request: Request) -> None:
        """`request` does not fit now: not proposed again in this look, but still waiting."""
        ...


class Charging(Protocol):
    """A policy's second half: what admission and output cost."""

    def on_admit(self, request: Request, *, extend_len: int) -> None:
        """`request` leaves the queue and `extend_len` of its prompt tokens must be computed."""
        ...

    def on_decode(self, request: Request, *, before: int, tokens: int) -> None:
        """`request` emitted `tokens` more outputs after its first `before`."""
        ...

    def credit(self, client: ClientId) -> int:
        """How much the client is owed, in units; the least owed is preempted first."""
        ...


@runtime_checkable
class Settling(Protocol):
    """What only a policy that charges in advance wants to hear."""

    def on_end(self, request: Request, *, output_len: int, finished: bool) -> None:
        """A request that was admitted is gone, cancelled or `finished`, after `output_len` outputs."""
        ...


@runtime_checkable
class Correcting(Protocol):
    """A policy that charges for prompts, and can put right what was charged by an estimate."""

    def correct(self, request: Request, *, charged: Prompt, true: Prompt) -> None:
        """The prompt was charged as `charged` and took `true`: the difference is paid or given back."""
        ...


@runtime_checkable
class Asking(Protocol):
    """A policy that asks what was emitted, when it needs to know, instead of being told each time.

    It calls `settle(client)`, or `settle(None)` for all clients, which brings `on_decode` up to date.
    A policy to which outputs are free says `charges_outputs = False` instead, and is told at the end.
    """

    settle: Callable[[ClientId | None], None]


def nothing_due(client: ClientId | None) -> None:
    """`Asking.settle` until a scheduler says how to ask: every output is told at once."""


@runtime_checkable
class SharingDeficits(Protocol):
    """A policy whose clients are served by other hosts, too; `next` holds back who must wait for them.

    While somebody with credit waits elsewhere, nobody without any goes here.
    """

    def report(self) -> Mapping[ClientId, int]:
        """What it charged since the last report, in units."""
        ...

    def take_back(self, report: Mapping[ClientId, int]) -> None:
        """That report did not arrive; it is part of the next."""
        ...

    def adopt(self, account: Mapping[ClientId, int], elsewhere: Collection[ClientId]) -> None:
        """Each client's credit, of what all hosts have charged, that report included; who waits elsewhere."""
        ...

    def quantum_of(self, client: ClientId) -> int:
        """What a round of refill gives the client, in units."""
        ...


class Policy(Ordering, Charging, Protocol):
    """One scheduling algorithm."""


class Selection(Protocol):
    """Host side, while it fills the batch. A look ends when `propose` gives None."""

    def begin(self) -> None:
        """Begin a look; call it once a step, and only `propose` when a slot is free."""
        ...

    def propose(self) -> Request | None:
        """The request to try now; the host answers with `admit`, `pass_over` or `hold`."""
        ...

    def admit(self, request: Request, *, extend_len: int) -> None:
        """It runs; `extend_len` is what its prompt costs with the match locked now."""
        ...

    def pass_over(self, request: Request) -> None:
        """It does not fit in memory now."""
        ...


class Accounting(Protocol):
    """Host side, as requests come, emit and go."""

    def add(self, request: Request) -> None:
        """It arrived."""
        ...

    def decode(self, request: Request, tokens: int) -> None:
        """It emitted `tokens` outputs."""
        ...

    def preempt(self, request: Request) -> None:
        """It was running and waits again; it comes back first and pays nothing twice."""
        ...

    def finish(self, request: Request) -> None:
        """It emitted its last output."""
        ...

    def cancel(self, request: Request) -> None:
        """It is gone, from whatever state; what it consumed stays charged."""
        ...


class Wakeup(Protocol):
    """Host side, for requests that wait for something else than memory."""

    def hold(self, request: Request) -> None:
        """It waits for a grammar, a LoRA slot or remote KV: it neither has nor blocks credit."""
        ...

    def release(self, request: Request) -> None:
        """What it waited for is there; it keeps its place in the order of arrival."""
        ...


class Router(Protocol):
    """Picks a worker for a request and hears what became of it (Algorithm 2)."""

    def add_worker(self, worker: WorkerId) -> None:
        """`worker` is up and takes requests."""
        ...

    def remove_worker(self, worker: WorkerId) -> None:
        """`worker` is gone: its counters and queue length are dropped at once."""
        ...

    def route(
        self,
        request: Request,
        *,
        matches: PrefixMatches,
        candidates: Collection[WorkerId] | None = None,
    ) -> WorkerId:
        """The worker to send it to, of `candidates`, or of all that are up.

        `matches` says who has cached how much of the prompt. `candidates` is not empty, holds only
        workers that are up, and answers `in` quickly.
        """
        ...

    def dispatch(self, request: Request, worker: WorkerId, *, extend_len: int) -> None:
        """`request` was sent to `worker`, where about `extend_len` tokens must be computed."""
        ...

    def settle(
        self, request: Request, worker: WorkerId, *, extend_len: int, output_len: int
    ) -> None:
        """It ended there; what it really cost replaces the estimate (0, 0 moves the charge away)."""
        ...


@runtime_checkable
class Timed(Protocol):
    """A router that also wants to know how long requests took, from hosts that can tell."""

    def served(
        self, request: Request, worker: WorkerId, *, first_us: int, end_us: int, output_len: int
    ) -> None:
        """It emitted its first token and its last, the `output_len`-th; it is settled next."""
        ...


class LateBound(Protocol):
    """Instead of a router: nobody is chosen on arrival, and the worker that has room takes a request.

    The host offers each request to all workers' policies (`Ordering.add`), and takes it back from the
    others (`Ordering.remove`) when `claimed` says who admitted it. If it was at a worker before, which
    failed, `claimed` answers with what `remove_worker` said then: it does not pay twice.
    """

    claimed: Callable[[Request, WorkerId], int | None]

    def add_worker(self, worker: WorkerId, cache: RadixTree | BlockCache) -> Policy:
        """`worker` is up with `cache`; its policy, to which what waits has yet to be offered."""
        ...

    def remove_worker(self, worker: WorkerId) -> Mapping[Request, int]:
        """`worker` is gone; what was offered there only, waits no more.

        Says who ran there, and how many outputs each has paid for, as well as its prompt.
        """
        ...

    def blocked_us(self, worker: WorkerId, now_us: int) -> int:
        """How long the worker has to wait for the answer to its last look, once; 0 without one."""
        ...

    def overhead(self) -> Mapping[str, int | float]:
        """What being asked has cost so far: `central` in docs/reference/summary.md."""
        ...
