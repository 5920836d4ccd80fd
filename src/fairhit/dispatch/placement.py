"""A ticket's engine: the router decides, the prefix index says who has cached what of the prompt."""

from collections.abc import Collection

from fairhit.core.cache.prefix_matches import PrefixMatches, WorkersOfLength
from fairhit.core.cache.token_blocks import TOKEN_BYTES
from fairhit.core.policy import Router
from fairhit.core.request import WorkerId
from fairhit.dispatch.accounting.token_scale import TokenScale
from fairhit.dispatch.ticket import Ticket
from fairhit.routers.prefix_index.interface import PrefixIndex
from fairhit.routers.sticky import Sticky


class Placement:
    """Router and index, with the lengths of prompts between them."""

    def __init__(self, *, router: Router, index: PrefixIndex) -> None:
        self.router = router
        self.index = index
        self.scale = TokenScale()
        self._is_sticky = isinstance(router, Sticky)

    def pins(self, ticket: Ticket) -> bool:
        """Whether it may go only where the router says, however much there is to do at that engine."""
        return self._is_sticky and bool(ticket.request.routing_key)

    def matches(self, ticket: Ticket) -> PrefixMatches:
        """How many tokens of the prompt each worker has. O(chunks of the prompt)."""
        by_length: list[WorkersOfLength] = []
        for depth, holders in self.index.match(ticket.request.prompt).by_length:
            length = self.tokens(ticket, depth)
            if by_length and by_length[-1][0] == length:  # both have all but the last token
                by_length[-1] = (length, {*by_length[-1][1], *holders})
            elif length:
                by_length.append((length, holders))
        return PrefixMatches(by_length)

    def tokens(self, ticket: Ticket, depth: int) -> int:
        """The tokens in the first `depth` units of the prompt, the last of which is never cached."""
        length = self.index.covered(depth)
        tokens = self.scale.tokens(length) if ticket.text_len else length // TOKEN_BYTES
        return min(tokens, ticket.request.input_len - 1)

    def choose(
        self,
        ticket: Ticket,
        matches: PrefixMatches,
        candidates: Collection[WorkerId] | None,
    ) -> WorkerId:
        """The worker for it; `candidates` None: all that are up. See `Router.route`."""
        return self.router.route(ticket.request, matches=matches, candidates=candidates)

    def assign(self, ticket: Ticket, worker: WorkerId, matched_len: int) -> None:
        """It is to be served by `worker`, and is charged there."""
        ticket.worker, ticket.matched_len = worker, matched_len
        self.router.dispatch(ticket.request, worker, extend_len=ticket.extend_len)
        self.insert(ticket)

    def insert(self, ticket: Ticket) -> None:
        """Alg. 2, line 19. Optimistic: the engine has yet to compute it. O(prompt)."""
        ticket.held = self.index.insert(ticket.worker, ticket.request.prompt)

    def withdraw(self, ticket: Ticket) -> None:
        """It is not, and the charge is given back."""
        self.router.settle(ticket.request, ticket.worker, extend_len=0, output_len=0)
        ticket.worker = ""
