"""Followers: waiting requests that share a prefix with a prompt being prefilled, and so wait for its result.

A follower that waits does not compute the shared prefix again. SGLang's lpm does the same within one batch
("in-batch prefix caching"), and so does the simulator's profile `sglang`. Under overlap scheduling a batch is
in the radix tree one step after the next batch is formed: so its prompts count as being prefilled until its
result is processed.
"""

from collections.abc import Iterator, Set
from typing import TYPE_CHECKING

from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.cache.token_runs import Runs
from fairhit.core.request import Request

if TYPE_CHECKING:
    from fairhit.engines.sglang.radix.tree import SglangTreeView

# Tokens a follower must save by waiting; SGLang's IN_BATCH_PREFIX_CACHING thresholds.
MIN_SHARED_LEN = 32
# Scheduling passes in which a request may be deferred as a follower, so that none is deferred for ever.
MAX_DEFERRED_PASSES = 8


class Followers:
    """The prompts being prefilled, and how often each waiting request was deferred for them."""

    def __init__(self, tree: "SglangTreeView") -> None:
        self._tree = tree
        self._prefilling: dict[Request, Runs] = {}
        self._prefill_tree: RadixTree | None = None  # of these prompts; None: to be built
        self._deferred: dict[Request, int] = {}

    def on_prefill(self, request: Request) -> None:
        """Record that a request's prompt is being prefilled. O(1), or O(prompt) if the tree is built."""
        self._deferred.pop(request, None)
        prompt = self._prefilling[request] = Runs.of(request.prompt)
        if self._prefill_tree is not None:
            _insert(self._prefill_tree, prompt)

    def remove(self, request: Request) -> None:
        """Forget a request: its prompt is cached, or will not be computed. O(1)."""
        self._deferred.pop(request, None)
        if self._prefilling.pop(request, None) is not None:
            self._prefill_tree = None

    def defers(self, request: Request) -> bool:
        """Return whether to defer a request to the next pass, and count that if so. O(prompt)."""
        deferred = self._deferred.get(request, 0)
        if not self._prefilling or deferred >= MAX_DEFERRED_PASSES:
            return False
        if self._prefill_tree is None:
            self._prefill_tree = RadixTree()
            for prompt in self._prefilling.values():
                _insert(self._prefill_tree, prompt)
        saved = self._prefill_tree.match_len(request.prompt) - self._tree.match_len(request.prompt)
        if saved * self._tree.page_len < MIN_SHARED_LEN:
            return False
        self._deferred[request] = deferred + 1
        return True

    def differences(self, waiting: Set[Request], running: Set[Request]) -> Iterator[str]:
        """Yield each record of a request that is neither waiting nor running; for audits. O(records)."""
        for request in self._prefilling.keys() - running:
            yield f"{request.id} counts as being prefilled and does not run"
        for request in self._deferred.keys() - waiting:
            yield f"{request.id} counts as a follower and does not wait"


def _insert(tree: RadixTree, prompt: Runs) -> None:
    tree.insert(tree.acquire(prompt, 0), prompt, 0)
