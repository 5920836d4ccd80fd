"""Chooses a ticket's engine: the router decides by what the prefix index knows of the engines' caches."""

from collections.abc import Collection
from zlib import crc32

from fairhit.core.cache.prefix_matches import PrefixMatches, WorkersOfLength
from fairhit.core.cache.token_blocks import TOKEN_BYTES
from fairhit.core.policy import Router
from fairhit.core.request import WorkerId
from fairhit.dispatch.accounting.token_scale import TokenScale
from fairhit.dispatch.ticket import Ticket
from fairhit.routers.in_flight_load import load_of
from fairhit.routers.prefix_index.interface import PrefixIndex
from fairhit.routers.prefix_index.precise import PrecisePrefixIndex
from fairhit.routers.sticky import Sticky

# Tokens that a busier engine may have in flight beyond another one, for each prompt token that it has cached
# beyond it. Both may have capacity; the requests of one prefix would gather where it is cached.
_WORTH = 8


class Placement:
    """Router and prefix index, and the conversion from prompt units to tokens between them."""

    def __init__(self, *, router: Router, index: PrefixIndex) -> None:
        self.router = router
        self.index = index
        self.scale = TokenScale()
        self._counts = isinstance(index, PrecisePrefixIndex)
        self._is_sticky = isinstance(router, Sticky)
        self._load = load_of(router)

    def pins(self, ticket: Ticket) -> bool:
        """Return whether only the router's choice may serve `ticket`, however busy that engine is."""
        return self._is_sticky and bool(ticket.request.routing_key)

    def matches(self, ticket: Ticket) -> PrefixMatches:
        """Return how many tokens of the prompt each engine has cached. O(chunks of the prompt)."""
        by_length: list[WorkersOfLength] = []
        for depth, holders in self.index.match(ticket.request.prompt).by_length:
            length = self.tokens(ticket, depth)
            if by_length and by_length[-1][0] == length:  # both have all but the last token
                by_length[-1] = (length, {*by_length[-1][1], *holders})
            elif length:
                by_length.append((length, holders))
        return PrefixMatches(by_length)

    def tokens(self, ticket: Ticket, depth: int) -> int:
        """Return the tokens in the prompt's first `depth` units, without its last token: never cached."""
        length = self.index.covered(depth)
        tokens = self.scale.tokens(length) if ticket.text_len else length // TOKEN_BYTES
        return min(tokens, ticket.request.input_len - 1)

    def prefix_len(self, depth: int) -> int:
        """Return the tokens in the first `depth` units of a prompt: counted, or estimated. O(1)."""
        length = self.index.covered(depth)
        return length // TOKEN_BYTES if self._counts else self.scale.tokens(length)

    def choose(
        self,
        ticket: Ticket,
        matches: PrefixMatches,
        candidates: Collection[WorkerId] | None,
    ) -> WorkerId:
        """Return the router's choice among `candidates`, None for all engines that are up."""
        return self.router.route(ticket.request, matches=matches, candidates=candidates)

    def choose_free(
        self, ticket: Ticket, matches: PrefixMatches, free: Collection[WorkerId]
    ) -> WorkerId:
        """Return the router's choice among `free`, or the idlest if the match is not worth its backlog.

        O(as the router's choice).
        """
        chosen = self.choose(ticket, matches, free)
        if self._load is None or not matches.of(chosen):
            return chosen
        rotation = crc32(ticket.request.client.encode())
        idlest = self._load.order.least(rotation, candidates=free)
        assert idlest is not None, "no engine to choose from"
        saved = matches.of(chosen) - matches.of(idlest)
        return chosen if saved <= 0 or self.is_worth(saved, chosen, idlest) else idlest

    def is_worth(self, saved: int, holder: WorkerId, other: WorkerId) -> bool:
        """Return whether `saved` cached tokens are worth a longer backlog at `holder` than at `other`. O(1).

        Always, with a router that keeps no in-flight load.
        """
        load = self._load
        return load is None or load.tokens(holder) - load.tokens(other) <= _WORTH * saved

    def charge(self, ticket: Ticket, worker: WorkerId, matched_len: int) -> None:
        """Charge `ticket` to `worker` in the router, and enter its prompt in the prefix index."""
        ticket.worker, ticket.matched_len = worker, matched_len
        self.router.dispatch(ticket.request, worker, extend_len=ticket.extend_len)
        self.insert(ticket)

    def insert(self, ticket: Ticket) -> None:
        """Alg. 2, line 19: enter the prompt optimistically, before the engine has computed it. O(prompt)."""
        ticket.indexed = self.index.insert(ticket.worker, ticket.request.prompt)

    def refund(self, ticket: Ticket) -> None:
        """Give back the charge of a ticket that its engine did not serve."""
        self.router.true_up(ticket.request, ticket.worker, extend_len=0, output_len=0)
        ticket.worker = ""
