"""All that waits in SGLang, who is next, and what each has paid: SGLang's requests as our scheduler's.

SGLang sorts a list and walks it, and the walk ends at the first that does not fit. Here nothing is
sorted: while it walks, each step asks the scheduler who is next, and is answered before the next one is
asked (`admitted`, or skipped). So what is admitted is charged before anybody else is chosen, nothing is
charged that was not, and no refill is granted for a choice that was only imagined.

    passed over by the walk   held for this look: a prefetch under way
    no slot for its adapter   set aside with all that want the adapter; in each look one of them is tried
    retracted                 comes back first, and pays nothing twice
    refused by SGLang         computed as one token, like any request, and charged nothing in the end
    the list made anew        SGLang does that after each admission; who is missing then is gone
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from fairhit.core.client_table import OTHER
from fairhit.core.fair_queue import FairQueue, RequestState
from fairhit.core.request import ClientId, Request, RequestId
from fairhit.core.service import WEIGHT_SCALE, Service, Weights
from fairhit.engines.sglang.followers import Followers
from fairhit.engines.sglang.lora_slots import SglangLoraSlots
from fairhit.errors import QueueFull

if TYPE_CHECKING:
    from fairhit.engines.sglang.radix.tree import EngineTree

# Held requests after which a look ends: it must not cost as much as all that waits.
HELD_PER_LOOK = 64


class SglangSchedulerView(Protocol):
    """What the line asks of the SGLang scheduler it stands in, and tells it."""

    def client_of(self, req: Any) -> ClientId:
        """Whose request it is."""
        ...

    def has_room(self, adder: Any) -> bool:
        """Whether one more might be admitted: without room there is no look and no refill."""
        ...

    def received(self, client: ClientId) -> Service:
        """What the client received since its metrics were last written, to be added to."""
        ...

    def holds_slot(self, adder: Any, req: Any) -> bool:
        """Whether what it was passed over for is not a LoRA slot; asked where there are any. O(running)."""
        ...

    def running(self, batch: Any) -> Iterable[Any]:
        """SGLang's requests that run, and so hold LoRA slots; `batch` is what `begin` was given."""
        ...


@dataclass(slots=True)
class QueuedRequest:
    """One of SGLang's requests and ours for it."""

    req: Any
    ours: Request
    charged: int = 0  # outputs
    extend_len: int = 0  # what its prompt was charged for
    computed: int = 0  # up to where its prompt was, while it had no outputs; a retraction drops it
    turn: int = 0  # its place in the order of admission
    is_refused: bool = False  # SGLang answers it with an error, after a prefill of one token


class SglangQueueAdapter:
    """From arrival to the end. `Any` is SGLang's request, `Request` is ours. `slots`: None without LoRA."""

    def __init__(
        self,
        core: FairQueue,
        tree: "EngineTree",
        host: SglangSchedulerView,
        *,
        slots: SglangLoraSlots | None = None,
        weights: Weights | None = None,
    ) -> None:
        self._core, self._tree, self._host = core, tree, host
        self._slots, self._weights = slots, weights or Weights()
        self._followers = Followers(tree)
        self._order, self._turn = count(), count()
        self._places: dict[Any, QueuedRequest] = {}  # by SGLang's request, running ones included
        self._names: dict[RequestId, QueuedRequest] = {}  # by the name of ours
        self._held: list[Request] = []
        self._adder: Any = None  # of the look under way, until its walk begins
        self._proposed: QueuedRequest | None = None
        self.cut_looks = 0  # looks that ended at HELD_PER_LOOK or ASIDE_PER_LOOK

    def __len__(self) -> int:
        """Who waits. O(1)."""
        return len(self._core)

    @property
    def adapter_turns(self) -> int:
        """How often a LoRA adapter gave way. O(1)."""
        return self._slots.turns if self._slots is not None else 0

    @property
    def live(self) -> int:
        """Who waits or runs. O(1)."""
        return len(self._places)

    # -- the look -------------------------------------------------------------------------------

    def begin(self, reqs: Sequence[Any], batch: Any = None) -> None:
        """SGLang is about to look for whom to admit: `reqs` is its list, whatever happened to it.

        `batch` is what runs by then; the scheduler's own is older.
        """
        self._adder = None
        self.adopt(reqs)
        held, self._held = self._held, []
        for ours in held:
            if ours.id in self._core:
                self._release(ours)
        if self._slots is not None:
            running = self._host.running(batch) if self._slots.needs_running else ()
            places = (place for req in running if (place := self._places.get(req)))
            for ours in self._slots.begin((place.ours, place.req) for place in places):
                self._release(ours)
        self._core.begin()

    def expect_walk(self, adder: Any) -> None:
        """Whoever iterates next over the queue is the one who admits."""
        self._adder = adder

    @property
    def is_walk_expected(self) -> bool:
        """Whether the next iteration is a walk."""
        return self._adder is not None

    def walk(self) -> Iterator[Any]:
        """Who is next, again and again, until nobody is or SGLang asks no more."""
        adder, self._adder = self._adder, None
        while (place := self._next(adder)) is not None:
            self._proposed = place
            yield place.req
            if self._proposed is place:  # neither admitted nor refused: SGLang went on to the next
                self._passed_over(adder, place)
        self._proposed = None

    def _next(self, adder: Any) -> QueuedRequest | None:
        slots = self._slots
        while len(self._held) < HELD_PER_LOOK and not (slots is not None and slots.is_look_over):
            if not len(self._core) or not self._host.has_room(adder):
                return None
            if (ours := self._core.propose()) is None:
                return None
            place = self._names[ours.id]
            if slots is not None and slots.lacks(place.req):
                self._set_aside(place)
                continue
            is_new = self._core.state(ours) is RequestState.WAITING
            if not (is_new and self._followers.follows(ours)):
                return place
            self._hold(ours)
        self.cut_looks += 1
        return None

    def _passed_over(self, adder: Any, place: QueuedRequest) -> None:
        """SGLang did not take it. If for want of a LoRA slot, then nobody who wants that adapter."""
        if self._slots is None or self._host.holds_slot(adder, place.req):
            self._hold(place.ours)
            return
        self._slots.found_none(place.req)
        self._set_aside(place)

    def _set_aside(self, place: QueuedRequest) -> None:
        assert self._slots is not None
        is_paid = self._core.state(place.ours) is RequestState.PREEMPTED
        self._core.hold(place.ours)
        self._slots.set_aside(place.ours, place.req, is_paid=is_paid)

    def admitted(self, req: Any) -> None:
        """It runs; what its cached prefix lacks is charged now, chunks that come later included."""
        self._proposed = None
        if (place := self._places.get(req)) is None:
            return
        ours, length = place.ours, len(req.full_untruncated_fill_ids)
        place.turn = next(self._turn)
        is_again = self._core.state(ours) is RequestState.PREEMPTED
        extend_len = max(1, length - req.prefix_len)
        if not is_again:
            extend_len = min(extend_len, ours.input_len)
        self._core.admit(ours, extend_len=extend_len)
        if self._slots is not None:
            is_free = is_again or place.is_refused
            for more in self._slots.admitted(ours, req, 0 if is_free else extend_len):
                self._release(more)
        if is_again:  # paid for before; this is what the system recomputes
            return
        place.extend_len = extend_len
        if place.is_refused:  # given back when it ends, which counters of metrics cannot do
            self._followers.done(ours)
            return
        self._followers.compute(ours)
        service = self._host.received(ours.client)
        service.extend_len += extend_len
        service.cached_len += ours.input_len - extend_len

    def has_admitted(self, req: Any) -> bool:
        """Whether it has been charged, and has not ended. O(1)."""
        return (place := self._places.get(req)) is not None and place.extend_len > 0

    def _hold(self, ours: Request) -> None:
        self._core.hold(ours)
        self._held.append(ours)

    def _release(self, ours: Request) -> None:
        try:
            self._core.release(ours)
        except QueueFull:  # its client was forgotten meanwhile, and the table is full
            self._core.cancel(ours)
            self._followers.done(ours)
            place = self._names[ours.id]
            place.ours = replace(ours, client=OTHER)
            self._core.add(place.ours)
            if self._slots is not None:
                self._slots.wants(place.ours, place.req)

    # -- who comes and goes ---------------------------------------------------------------------

    def arrive(self, req: Any) -> None:
        """It waits: for the first time, or again after it was retracted. O(prompt)."""
        if (place := self._places.get(req)) is not None:
            if self._core.state(place.ours) is RequestState.RUNNING:
                self._followers.done(place.ours)
                self._core.preempt(place.ours)
                if self._slots is not None:
                    self._slots.wants(place.ours, req)
            return
        tokens = req.origin_input_ids
        ours = Request(
            id=str(order := next(self._order)),
            client=self._host.client_of(req),
            prompt=self._tree.units(tokens, req.extra_key, req.cache_salt),
            input_len=max(1, len(tokens)),
            max_tokens=max(1, req.sampling_params.max_new_tokens or 1),
            order=order,
        )
        try:
            self._core.add(ours)
        except QueueFull:  # an exception here would end the engine: OTHER always has a place
            ours = replace(ours, client=OTHER)
            self._core.add(ours)
        is_refused = req.to_finish is not None
        self._places[req] = self._names[ours.id] = QueuedRequest(req, ours, is_refused=is_refused)
        if self._slots is not None:
            self._slots.wants(ours, req)

    def adopt(self, reqs: Sequence[Any]) -> None:
        """SGLang has made its list anew: whoever is not in it waits no more.

        O(1) if as many wait as before, less those admitted: then they are the same.
        """
        if len(reqs) == len(self._core):
            return
        there = dict.fromkeys(reqs)
        for req in there:
            if req not in self._places:
                self.arrive(req)
        waiting = [self._names[ours.id] for ours in self._core]
        for place in waiting:
            if place.req not in there:
                self.leave(place.req)

    def leave(self, req: Any) -> None:
        """It is gone, from wherever it was; what it consumed stays charged. O(log waiting)."""
        if place := self._places.get(req):
            self._forget(place)
            if place.extend_len and not place.charged:
                self._give_back(place)
            self._core.cancel(place.ours)

    def _forget(self, place: QueuedRequest) -> None:
        """Remove every record of a request but the core's. O(1)."""
        del self._places[place.req], self._names[place.ours.id]
        self._followers.done(place.ours)
        if self._slots is not None:
            self._slots.ended(place.ours.id)

    def _give_back(self, place: QueuedRequest) -> None:
        """The chunks of its prompt that it was charged for and will not have computed. O(log clients).

        Not in the metrics, whose counters can only rise.
        """
        if place.is_refused:
            self._core.correct(place.ours, input_len=0, extend_len=0)
            return
        ours, end = place.ours, max(place.computed, place.req.extend_end or 0)
        if not ours.input_len - place.extend_len < end < ours.input_len:
            return
        missing = ours.input_len - end
        self._core.correct(ours, input_len=end, extend_len=place.extend_len - missing)

    def emitted(self, reqs: Iterable[Any]) -> None:
        """A batch is through: each pays for what it emitted, once; some have ended. O(batch)."""
        for req in reqs:
            if (place := self._places.get(req)) is None:
                continue
            if place.is_refused:  # what it emitted is nobody's
                if req.finished():
                    self.leave(req)
                continue
            tokens = _output_len(req) - place.charged
            if tokens > 0:  # fewer after a retraction that dropped them
                place.charged += tokens
                self._core.decode(place.ours, tokens)
                if self._slots is not None:
                    self._slots.emitted(place.ours.id, tokens)
                self._host.received(place.ours.client).output_len += tokens
            elif not place.charged:  # a chunk of its prompt
                place.computed = max(place.computed, req.extend_end or 0)
            if req.finished():
                self._forget(place)
                self._core.finish(place.ours)
            elif tokens > 0:
                self._followers.done(place.ours)

    def least_entitled(self, req: Any) -> Any:
        """The request to drop where `req` arrives and one too many waits; `req` itself if it is the one.

        That is the newest of the client that has most waiting for its weight, `req` included: first of
        those that never ran. O(clients), and O(requests) where it is another client's.
        """
        place = self._places.get(req)  # of one that was retracted
        client = place.ours.client if place else self._host.client_of(req)
        shares = {
            each: (count + (each == client)) * WEIGHT_SCALE**2 // self._weights.of(each)
            for each, count in {client: 0, **self._core.waiting_by_client()}.items()
        }
        # Of several it is the first, its own: two clients shall not drop each other's in turn.
        most = max(shares, key=shares.__getitem__)
        if most == client and place is None:
            return req
        places = [self._names[ours.id] for ours in self._core if ours.client == most]
        if most == client and place is not None:
            places.append(place)
        return max(places, key=lambda each: (not each.extend_len, each.ours.order)).req

    def rematch(self) -> None:
        """The cache was emptied under those who wait. O(waiting)."""
        waiting = [ours for ours in self._core if self._core.state(ours) is RequestState.WAITING]
        for ours in waiting:
            self._core.hold(ours)
        for ours in waiting:
            self._release(ours)

    def victims(self, running: list[Any], most: int) -> list[Any]:
        """Whom to retract first, at most so many: the newest of the client owed least. O(running) each."""
        places = [place for req in running if (place := self._places.get(req))]
        places.sort(key=lambda place: place.turn)
        left = [place.ours for place in places]
        chosen: list[Any] = []
        while len(left) > 1 and len(chosen) < most and (victim := self._core.victim(left)):
            left.remove(victim)
            chosen.append(self._names[victim.id].req)
        return chosen

    def differences(self, waiting: Collection[Any], running: Collection[Any]) -> Iterator[str]:
        """Each record that contradicts SGLang's lists, which `waiting` and `running` are. O(requests)."""
        for what, reqs in (("waits", waiting), ("runs", running)):
            for req in reqs:
                if (place := self._places.get(req)) is None:
                    yield f"{req.rid} {what} and has no record"
                elif (state := self._state(place)) is None:
                    yield f"{req.rid} {what} and is not in the core"
                elif (state is RequestState.RUNNING) != (what == "runs"):
                    yield f"{req.rid} {what}, and is {state.value} in the core"
        for req in self._places.keys() - {*waiting, *running}:
            yield f"{req.rid} is gone and has a record"
        if wrong := {place.ours.id for place in self._places.values()} ^ self._core.known():
            yield f"requests {sorted(wrong)} are in the core or have a record, not both"
        waits = {self._places[req].ours.id: req for req in waiting if req in self._places}
        runs = {self._places[req].ours for req in running if req in self._places}
        yield from self._followers.differences(
            {self._places[req].ours for req in waits.values()}, runs
        )
        yield from self._differences_of_held(waits)

    def _state(self, place: QueuedRequest) -> RequestState | None:
        known = place.ours.id in self._core and self._names.get(place.ours.id) is place
        return self._core.state(place.ours) if known else None

    def _differences_of_held(self, waits: dict[RequestId, Any]) -> Iterator[str]:
        held = [ours.id for ours in self._held if ours.id in waits]
        if self._slots is not None:
            held += self._slots.aside()
            live = {place.ours.id for place in self._places.values()}
            owners = {name: (self._names[name].ours, req) for name, req in waits.items()}
            yield from self._slots.differences(owners, live)
        really = [ours.id for ours in self._core if self._core.state(ours) is RequestState.HELD]
        if sorted(held) != sorted(really):
            yield f"requests {sorted(held)} are kept out of a look, and {sorted(really)} are held"


def _output_len(req: Any) -> int:
    """Tokens emitted for a request, in all of its beams.

    What one step emits, by speculation say, may go on behind the end of the answer.
    """
    finished_len = getattr(req, "finished_len", None)
    length = len(req.output_ids) if finished_len is None else finished_len
    beams = getattr(req, "beam_group", None)
    return int(length * (beams.beam_width if beams else 1))
