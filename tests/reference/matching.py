"""The waiting queue re-matched from scratch at every question: what WaitingIndex must agree with."""

from collections.abc import Callable, Sequence

from fairhit.core.request import ClientId, Request, Unit


class RematchedQueue:
    """Waiting requests in a list; every answer matches all of them again. O(queue * prompt)."""

    def __init__(self, match_len: Callable[[Sequence[Unit]], int], *, block_size: int) -> None:
        self._match_len = match_len
        self._block_size = block_size
        self.requests: list[Request] = []
        self.hidden: set[str] = set()
        self.open: set[ClientId] = set()

    def match(self, request: Request) -> int:
        """Matched tokens, the last prompt token left out."""
        end = (request.input_len - 1) // self._block_size
        return self._match_len(request.prompt[:end]) * self._block_size

    def best(self) -> Request | None:
        """Longest match, then earliest arrival, among the visible requests of open clients."""
        return min(
            (r for r in self.requests if r.id not in self.hidden and r.client in self.open),
            key=lambda r: (-self.match(r), r.order),
            default=None,
        )
