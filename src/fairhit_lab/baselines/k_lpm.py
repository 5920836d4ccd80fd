"""k-LPM: each k-th admission is the oldest request, the others the longest prefix match (arXiv:2502.04677).

k = 1 is first come, first served; k without end is LPM. Only the abstract was read. Chosen here: admissions
are counted over passes and for all clients together, the k-th of k is the oldest one, and k, the setting
`oldest_every`, is 4 by default.
"""

from fairhit.core.cache.cache_view import Cache
from fairhit.core.request import ClientId, Request
from fairhit.core.service import parse_tokens
from fairhit.core.waiting.arrival_queue import ArrivalQueue
from fairhit.core.waiting.cache_listener import waiting_index


class KLPM:
    """The oldest request at each k-th admission, else the longest cached prefix; nothing is charged."""

    def __init__(self, *, cache: Cache, oldest_every: int = 4) -> None:
        self._k = parse_tokens(oldest_every, least=1, where="oldest-every")
        self._index = waiting_index(cache)
        self._arrivals = ArrivalQueue()
        self._skipped: dict[Request, None] = {}  # hidden in the index
        self._admitted = 0

    def add(self, request: Request) -> None:
        """See `Policy.add`. O(prompt length + log n)."""
        self._index.add(request)
        self._index.open(request.client)
        self._arrivals.add(request)

    def remove(self, request: Request) -> None:
        """See `Policy.remove`. O(depth * log n)."""
        self._index.remove(request)
        self._arrivals.remove(request)
        self._skipped.pop(request, None)

    def begin_pass(self) -> None:
        """See `Policy.begin_pass`. O(skipped * log n)."""
        self._index.show_all()
        self._arrivals.show_all()
        self._skipped.clear()

    def next(self) -> Request | None:
        """Return the oldest request at each k-th admission, else the best match. O(log n)."""
        if (self._admitted + 1) % self._k:
            return self._index.best()
        while (oldest := self._arrivals.first()) in self._skipped and oldest is not None:
            self._arrivals.hide(oldest)
        return oldest

    def skip(self, request: Request) -> None:
        """See `Policy.skip`."""
        self._index.hide(request)
        self._skipped[request] = None

    def on_admit(self, request: Request, *, extend_len: int) -> None:
        """Count the admission."""
        self.remove(request)
        self._admitted += 1

    def on_decode(self, request: Request, *, before: int, tokens: int) -> None:
        """Charge nothing."""

    def credit(self, client: ClientId) -> int:
        """Return 0: all clients are alike."""
        return 0
