"""The waiting queue re-matched from scratch at every question: what WaitingIndex must agree with."""

from collections.abc import Callable, Sequence

from fairhit.core.request import ClientId, Request, Unit


class RematchedQueue:
    """Waiting requests in a list; every answer matches all of them again. O(queue * prompt).

    Matches in the same step of `near` tokens are equal between clients where `standing` is given.
    """

    def __init__(
        self,
        match_len: Callable[[Sequence[Unit]], int],
        *,
        block_size: int,
        near: int = 1,
        standing: Callable[[ClientId], int] | None = None,
    ) -> None:
        self._match_len = match_len
        self._block_size = block_size
        self._near = near
        self._standing = standing
        self.hits_only: set[ClientId] = set()
        self.requests: list[Request] = []
        self.hidden: set[str] = set()
        self.open: set[ClientId] = set()

    def match(self, request: Request) -> int:
        """Matched tokens, the last prompt token left out."""
        end = (request.input_len - 1) // self._block_size
        return self._match_len(request.prompt[:end]) * self._block_size

    def best(self) -> Request | None:
        """The first by `_rank` of what each open client would have admitted."""
        mine = [each for client in self.open if (each := self._best_of(client)) is not None]
        return min(mine, key=self._rank, default=None)

    def _best_of(self, client: ClientId) -> Request | None:
        """Longest match, then earliest arrival, of the visible requests; for hits only, if it is one."""
        best = min(
            (r for r in self.requests if r.id not in self.hidden and r.client == client),
            key=lambda r: (-self.match(r), r.order),
            default=None,
        )
        if best is None or client not in self.hits_only:
            return best
        return best if 10 * self.match(best) >= 9 * best.input_len else None

    def _rank(self, request: Request) -> tuple[int, ...]:
        """The longest match in steps, then the least standing, then the longest match, then age."""
        match = self.match(request)
        if self._standing is None:
            return (-match, request.order)
        step = -(match // self._near)
        return (step, self._standing(request.client), -match, request.order)
