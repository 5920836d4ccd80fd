"""Preble's E2, exploit or explore: arXiv:2407.00023, as its code does it, repaired.

    n, C      tokens of a node's edge; tokens of its path
    large     n > C - n. A request's *important* node is the nearest large one from its leaf up
    ref[g]    requests on worker g whose path includes a node
    exploit   the leaf is not large: the workers that hold the nearest node held by any
    explore   the leaf is large: all workers. Either way the one of least cost is chosen
    cost      expected prefills and decodes of a worker, by the last 3 minutes, and what it must evict

Repairs (docs/explanation/paper-map.md): sums are kept up to date instead of walking all nodes for each
request; running requests' prefixes are never counted as evicted; a hash of the client breaks ties; times
come from the simulator (`served`), and without them the initial 0.15 s a token stays and nothing is
replicated.

`PrebleRatio` is what the DLPM paper describes under that name, without costs and balancing.
"""

from collections import deque
from collections.abc import Collection, Iterable
from statistics import median_low
from zlib import crc32

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.cache.trie import path_to
from fairhit.core.request import Request, WorkerId
from fairhit.core.service import parse_tokens
from fairhit.routers.least_loaded import LeastLoaded
from fairhit_lab.baselines.preble_tree import PrebleNode, PrebleTree, Stat

# The constants of its code.
WINDOW_US = 180_000_000
CAPACITY_TOKENS = 198_516  # each worker's cache, a constant there, too
FIRST_PACE_US = 150_000  # a token's decode, until measured
_PACES = 200  # of which the median is taken, the latest
_WARM_UP = 50  # requests for each worker before balancing
_MAX_DEPTH = 3  # nodes between the leaf and the important one
_UNEVEN = (3, 2)  # 1.5 times


def prefill_us(own: int, context: int) -> int:
    """T: to compute `own` tokens of `context`; Preble's fit of Mistral-7B on an A6000."""
    ms = 22.0
    if own >= 384:
        ms = 0.1084 * own + 4.21
    elif own >= 192:
        ms = max(ms, -118 + 1.25 * own - 0.00256 * own * own)  # the printed parabola falls below it
    ms += 0.32 if context <= 1024 else 1.86e-4 * context + 0.159
    if own * context > 1 << 20:
        ms += 1.13e-3 * own + 1.75e-3 * context + 2.19e-6 * own * context
    return round(ms / 0.9 * 1000)


class WindowLoad:
    """Expected load of one worker by the window: of all nodes, and of those requested at least twice."""

    __slots__ = ("decodes", "pace_us", "paces", "prefills_us", "twice_decodes", "twice_us")

    def __init__(self) -> None:
        self.prefills_us = self.decodes = 0
        self.twice_us = self.twice_decodes = 0
        self.paces: deque[int] = deque(maxlen=_PACES)
        self.pace_us = FIRST_PACE_US


class Preble(PrebleTree):
    """Routes a prompt to a holder of its prefix, if that is most of the prompt, else to the cheapest worker.

    `capacity` is the assumed size of each worker's cache, in tokens; `window_us` is the length of the window.
    """

    def __init__(self, *, capacity: int = CAPACITY_TOKENS, window_us: int = WINDOW_US) -> None:
        super().__init__(capacity=parse_tokens(capacity, least=1, where="capacity"))
        assert window_us > 0, window_us
        self.replicated = self.moved = 0
        self._window_us = window_us
        self._window: deque[tuple[int, Stat, int, int]] = deque()  # when, what, hit, prompt
        self._hit = self._prompts = 0  # tokens in the window
        self._stats: dict[Stat, None] = {}
        self._loads: dict[WorkerId, WindowLoad] = {}
        self._in_flight: dict[WorkerId, dict[Request, tuple[PrebleNode, Stat | None]]] = {}
        self._now_us = 0
        self._routed = 0

    # -- Router --------------------------------------------------------------------------------

    def add_worker(self, worker: WorkerId) -> None:
        """See `Router.add_worker`."""
        super().add_worker(worker)
        self._loads[worker] = WindowLoad()
        self._in_flight[worker] = {}

    def remove_worker(self, worker: WorkerId) -> None:
        """See `Router.remove_worker`. O(what it held)."""
        super().remove_worker(worker)
        del self._loads[worker], self._in_flight[worker]

    def route(
        self,
        request: Request,
        *,
        matches: PrefixMatches,
        candidates: Collection[WorkerId] | None = None,
    ) -> WorkerId:
        """Choose a worker by E2. O(prompt), and O(holders) to exploit or O(workers) to explore."""
        pool = [each for each in self._loads if candidates is None or each in candidates]
        assert pool, "no worker to choose from"
        node, at = self.find(request.prompt)
        context = len(request.prompt)
        own = context - (at if at < context else node.start)  # n of its leaf, as it would be
        if own <= context - own:  # exploit
            above: PrebleNode | None = node
            while above is not None:
                if near := [worker for worker in pool if worker in above.holders]:
                    pool = near
                    break
                above = above.parent
        return self._cheapest(pool, own, crc32(request.client.encode()))

    def dispatch(self, request: Request, worker: WorkerId, *, extend_len: int) -> None:
        """Run steps 1 and 4. O(depth * holders), and while workers are uneven O(their nodes)."""
        self._now_us = max(self._now_us, request.arrival_us)
        self._forget()
        leaf = self.insert(request.prompt)
        self.begin(leaf, worker)
        depth, stat = self._remember(leaf, request)
        self._in_flight[worker][request] = (leaf, stat)
        self.evict(worker)
        self._routed += 1
        if self._routed >= _WARM_UP * len(self._loads) and depth < _MAX_DEPTH:
            self._balance()

    def true_up(
        self, request: Request, worker: WorkerId, *, extend_len: int, output_len: int
    ) -> None:
        """Count the request as ended, and evict what it kept beyond the capacity. O(depth * holders)."""
        sent = self._in_flight.get(worker, {}).pop(request, None)
        if sent is not None:
            self.end(sent[0], worker)
            self.evict(worker)

    def served(
        self, request: Request, worker: WorkerId, *, first_us: int, end_us: int, output_len: int
    ) -> None:
        """See `Timed.served`; called before `true_up`."""
        sent = self._in_flight.get(worker, {}).get(request)
        if sent is None:
            return
        stat = sent[1]
        if stat is not None:
            stat.waits.append((end_us, first_us - request.arrival_us))
            while stat.waits[0][0] < end_us - self._window_us:
                stat.waits.popleft()
        if output_len > 1:
            load = self._loads[worker]
            load.paces.append((end_us - first_us) // (output_len - 1))
            load.pace_us = median_low(load.paces)

    # -- cost ----------------------------------------------------------------------------------

    def weigh(self, stat: Stat, sign: int) -> None:
        """Subtract the cost of a node from its holders' sums (-1), or add it (+1). O(holders)."""
        node = stat.node
        if node is None or not node.holders:
            return
        each_us = stat.count * prefill_us(node.end - node.start, node.end) // len(node.holders)
        for worker in node.holders:
            load = self._loads[worker]
            decodes = node.runs.get(worker, 0) * stat.output_len
            load.prefills_us += sign * each_us
            load.decodes += sign * decodes
            if stat.count >= 2:
                load.twice_us += sign * each_us
                load.twice_decodes += sign * decodes

    def cost_us(self, worker: WorkerId) -> int:
        """Return the expected load of `worker`, without evictions for a new prompt. O(1)."""
        load = self._loads[worker]
        return self._missed(load.prefills_us) + load.decodes * load.pace_us

    def _missed(self, prefills_us: int) -> int:
        """Scale prefills by the share of tokens not cached, over all workers; 1 while it is unknown."""
        if not self._prompts:
            return prefills_us
        return prefills_us * (self._prompts - self._hit) // self._prompts

    def _cheapest(self, pool: Iterable[WorkerId], own: int, rotation: int) -> WorkerId:
        """Return the worker of least cost, evictions of `own` tokens included; they are computed for few."""
        order = list(pool)
        if len(order) == 1:
            return order[0]
        begin = rotation % len(order)
        order = order[begin:] + order[:begin]
        ranked = sorted((self.cost_us(worker), index) for index, worker in enumerate(order))
        best: tuple[int, int] | None = None
        for known, index in ranked:
            if best is not None and (known, index) >= best:
                break
            total = (known + self._eviction_us(order[index], own), index)
            best = total if best is None else min(best, total)
        assert best is not None
        return order[best[1]]

    def _eviction_us(self, worker: WorkerId, own: int) -> int:
        """Return the cost of computing again the `own` tokens that `worker`, taken as full, would evict."""
        lost_us = 0
        for node in self.victims(worker, own):
            if node.is_large and node.stat is not None:
                lost_us += node.stat.count * prefill_us(node.end - node.start, node.end)
        return self._missed(lost_us)

    # -- the window ----------------------------------------------------------------------------

    def _remember(self, leaf: PrebleNode, request: Request) -> tuple[int, Stat | None]:
        """Count the request at its important node; that node's distance from the leaf, and its statistics."""
        for depth, node in enumerate(path_to(leaf)):
            if node.is_large:
                stat = node.stat
                if stat is None:
                    stat = node.stat = Stat(node)
                    self._stats[stat] = None
                self.weigh(stat, -1)
                stat.count += 1
                stat.output_len = request.max_tokens
                self.weigh(stat, 1)
                self._enter(stat, leaf.start, leaf.end)
                return depth, stat
        return _MAX_DEPTH, None  # an empty prompt

    def _enter(self, stat: Stat, hit: int, prompt: int) -> None:
        self._window.append((self._now_us, stat, hit, prompt))
        self._hit += hit
        self._prompts += prompt

    def _forget(self) -> None:
        """Remove requests that have left the window. O(1) amortised."""
        before_us = self._now_us - self._window_us
        while self._window and self._window[0][0] < before_us:
            _, stat, hit, prompt = self._window.popleft()
            self._hit -= hit
            self._prompts -= prompt
            self.weigh(stat, -1)
            stat.count -= 1
            if stat.count:
                self.weigh(stat, 1)
            else:
                del self._stats[stat]
                if stat.node is not None:
                    stat.node.stat = None
                    stat.node = None

    # -- balance -------------------------------------------------------------------------------

    def _balance(self) -> None:
        """While a worker costs 1.5 times the cheapest, move some of its nodes there, or copy one."""
        ranked = sorted(self._loads, key=self._twice_us)
        light = ranked[0]
        while len(ranked) > 1 and self._is_uneven(heavy := ranked.pop(), light):
            stats = [stat for stat in self._stats if self._is_movable(stat, heavy)]
            if len(stats) == 1:
                self._replicate(stats[0], light)
            else:
                self._move(stats, heavy, light)

    def _twice_us(self, worker: WorkerId) -> int:
        """Return the cost of a worker, of nodes requested at least twice."""
        load = self._loads[worker]
        return self._missed(load.twice_us) + load.twice_decodes * load.pace_us

    def _is_uneven(self, heavy: WorkerId, light: WorkerId) -> bool:
        most, least = _UNEVEN
        return self._twice_us(heavy) * least >= self._twice_us(light) * most

    @staticmethod
    def _is_movable(stat: Stat, worker: WorkerId) -> bool:
        return stat.count >= 2 and stat.node is not None and worker in stat.node.holders

    def _replicate(self, stat: Stat, light: WorkerId) -> None:
        """Copy the only movable node of a worker to `light` if its requests have become slow."""
        assert stat.node is not None
        if light not in stat.node.holders and self._is_slower(stat):
            self.hold(stat.node, light)
            self.evict(light)
            self.replicated += 1

    def _is_slower(self, stat: Stat) -> bool:
        """Return whether the time to first token has doubled within the window."""
        before_us = self._now_us - self._window_us
        waits = [wait_us for when_us, wait_us in stat.waits if when_us >= before_us]
        half = len(waits) // 2
        older, newer = waits[:half], waits[half:]
        return half > 0 and sum(newer) * half >= 2 * sum(older) * len(newer)

    def _move(self, stats: list[Stat], heavy: WorkerId, light: WorkerId) -> None:
        """Move nodes with their subtrees, the cheapest first, as long as `light` stays the cheaper worker."""
        ranked = sorted((self._share_us(stat, heavy), index) for index, stat in enumerate(stats))
        for _, index in ranked:
            if not self._is_uneven(heavy, light):
                return
            stat = stats[index]
            if not self._is_movable(stat, heavy):  # it was moved with an ancestor
                continue
            cost_us = self._share_us(stat, heavy)
            if self._twice_us(light) + cost_us > self._twice_us(heavy) - cost_us:
                return
            assert stat.node is not None
            for node in self._below(stat.node, heavy):
                self.hold(node, light)
            self.hold(stat.node, light)
            self.drop(stat.node, heavy)
            self.evict(light)
            self.moved += 1

    def _share_us(self, stat: Stat, worker: WorkerId) -> int:
        """Return the cost of a node for one of its holders."""
        node = stat.node
        assert node is not None
        each_us = stat.count * prefill_us(node.end - node.start, node.end) // len(node.holders)
        decodes = node.runs.get(worker, 0) * stat.output_len
        return self._missed(each_us) + decodes * self._loads[worker].pace_us


class PrebleRatio(LeastLoaded):
    """Of the workers with the longest match, if it is half of the prompt, else of all: the least loaded.

    arXiv:2501.14312v1, section 6.1: "a pre-defined prefix-matching ratio", whose value it does not print;
    from half of the prompt on Preble's own E2 exploits.
    """

    def route(
        self,
        request: Request,
        *,
        matches: PrefixMatches,
        candidates: Collection[WorkerId] | None = None,
    ) -> WorkerId:
        """Choose a worker. O(match lengths), and as `LoadOrder.least`."""
        for length, holders in matches.by_length:
            if 2 * length < request.input_len:
                break
            chosen = self.load.order.least(among=holders, candidates=candidates)
            if chosen is not None:
                return chosen
        return super().route(request, matches=matches, candidates=candidates)
