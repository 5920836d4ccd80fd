"""Requests that want what a prefill under way computes: they wait for it instead of computing it again.

The simulator's host `sglang` does the same; SGLang's lpm does it within one batch (its "in-batch prefix
caching"). Under overlap scheduling a batch is in the tree one step later than the next one is formed: so
its prompts count until its result is there.
"""

from collections.abc import Iterator, Set
from typing import TYPE_CHECKING

from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.cache.token_runs import Runs
from fairhit.core.request import Request

if TYPE_CHECKING:
    from fairhit.engines.sglang.radix.tree import EngineTree

# Tokens a follower must save by waiting; SGLang's IN_BATCH_PREFIX_CACHING thresholds.
MIN_FOLLOW = 32
# Looks in which a request is held back as a follower, at most: nobody may be kept from running by that.
MAX_HELD_LOOKS = 8


class Followers:
    """What is being computed, and who has waited for it how often."""

    def __init__(self, tree: "EngineTree") -> None:
        self._tree = tree
        self._computing: dict[Request, Runs] = {}
        self._wave: RadixTree | None = None  # of them; None: not made yet
        self._waited: dict[Request, int] = {}

    def compute(self, request: Request) -> None:
        """Its prompt is in a prefill from now on. O(prompt) when somebody asks."""
        self._waited.pop(request, None)
        prompt = self._computing[request] = Runs.of(request.prompt)
        if self._wave is not None:
            _enter(self._wave, prompt)

    def done(self, request: Request) -> None:
        """What was computed of it is in the tree, or never will be. O(1)."""
        self._waited.pop(request, None)
        if self._computing.pop(request, None) is not None:
            self._wave = None

    def follows(self, request: Request) -> bool:
        """Whether it is worth waiting once more; if so, that is counted. O(prompt)."""
        waited = self._waited.get(request, 0)
        if not self._computing or waited >= MAX_HELD_LOOKS:
            return False
        if self._wave is None:
            self._wave = RadixTree()
            for prompt in self._computing.values():
                _enter(self._wave, prompt)
        saved = self._wave.match_len(request.prompt) - self._tree.match_len(request.prompt)
        if saved * self._tree.page_len < MIN_FOLLOW:
            return False
        self._waited[request] = waited + 1
        return True

    def differences(self, waiting: Set[Request], running: Set[Request]) -> Iterator[str]:
        """Each record of a request that is not of these; for audits. O(records)."""
        for request in self._computing.keys() - running:
            yield f"{request.id} counts as being computed and does not run"
        for request in self._waited.keys() - waiting:
            yield f"{request.id} counts as a follower and does not wait"


def _enter(wave: RadixTree, prompt: Runs) -> None:
    wave.insert(wave.acquire(prompt, 0), prompt, 0)
