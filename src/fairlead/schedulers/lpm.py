"""Longest prefix match (LPM): the cache hits of SGLang's policy, without its cost or its cap.

SGLang matches the whole queue at every step and gives up above 128 waiting; here the waiting index
knows every match already (DESIGN 4). There is no fairness in it: who shares a hot prefix goes first.
"""

from fairlead.core.block_cache import BlockCache
from fairlead.core.radix_tree import RadixTree
from fairlead.core.request import ClientId, Request
from fairlead.core.watch import waiting_index


class LPM:
    """The longest cached prefix first, then the oldest; whoever sent it."""

    def __init__(self, *, cache: RadixTree | BlockCache) -> None:
        self._index = waiting_index(cache)
        self._passed: dict[Request, None] = {}

    def add(self, request: Request) -> None:
        """See `Ordering.add`."""
        self._index.add(request)
        self._index.open(request.client)

    def remove(self, request: Request) -> None:
        """See `Ordering.remove`."""
        self._passed.pop(request, None)
        self._index.remove(request)

    def begin(self) -> None:
        """See `Ordering.begin`."""
        for request in self._passed:
            self._index.show(request)
        self._passed.clear()

    def next(self) -> Request | None:
        """The best match of all."""
        return self._index.best()

    def pass_over(self, request: Request) -> None:
        """See `Ordering.pass_over`."""
        self._passed[request] = None
        self._index.hide(request)

    def on_admit(self, request: Request, *, extend_len: int) -> None:
        """Nothing is charged."""
        self.remove(request)

    def on_decode(self, request: Request, *, before: int, tokens: int) -> None:
        """Nothing is charged."""

    def credit(self, client: ClientId) -> int:
        """All are owed alike, so the newest request of all is preempted first."""
        return 0
