"""Algorithm 3 (docs/explanation/fair.md) the slow way: look at every request, one quantum at a time."""

from fractions import Fraction

from fairhit.core.request import Request
from fairhit.policies import fair

TOKEN = 10**8


class PrintedFair:
    """What `fairhit.policies.fair.Fair` must agree with, decision by decision."""

    def __init__(
        self,
        *,
        cache,
        quantum,
        overdraft,
        near,
        cost,
        weights=None,
        prepay="expected",
        eviction="wanted-last",
    ):
        self.cache, self.cost, self.near = cache, cost, near
        self.prepay = prepay == "expected"
        self.weight = lambda client: Fraction((weights or {}).get(client, 1))
        self.quantum = lambda client: quantum * TOKEN * self.weight(client)
        self.overdraft = lambda client: overdraft * TOKEN * self.weight(client)
        self.q, self.floor, self.outputs = {}, {}, {}
        self.queue: list[Request] = []
        self.passed: set[Request] = set()
        self.prepaid, self.unpaid = {}, {}
        if eviction == "wanted-last":
            cache.keep(self.wanted_len)

    def wanted_len(self, tokens, length):
        known = tokens.units()[:length]
        return max((agree(known, r.prompt[: r.input_len - 1]) for r in self.queue), default=0)

    def add(self, request):
        self.q.setdefault(request.client, 0)
        self.queue.append(request)

    def remove(self, request):
        self.queue.remove(request)
        self.passed.discard(request)

    def begin_pass(self):
        self.passed.clear()

    def check_refill(self):
        if not self.queue or any(self.q[r.client] > 0 for r in self.queue):
            return False
        for client in self.q:
            if self.q[client] <= 0:
                self.q[client] += self.quantum(client)
        return True

    def match(self, request):
        return min(self.cache.match_len(request.prompt), request.input_len - 1)

    def best_of(self, client):
        """The client's best request, if it may be admitted."""
        free = [r for r in self.queue if r.client == client and r not in self.passed]
        if not free:
            return None
        best = min(free, key=lambda r: (-self.match(r), r.order))
        if self.q[client] > 0:
            return best
        within = client in self.floor and self.q[client] > self.floor[client]
        return best if within and 10 * self.match(best) >= 9 * best.input_len else None

    def rank(self, request):
        q = self.q[request.client]
        share = q / self.weight(request.client)
        match = self.match(request)
        step = match // self.near
        return (-step, q <= 0, -share, -match, request.order)

    def next(self):
        while True:
            clients = {r.client for r in self.queue}
            found = [best for client in clients if (best := self.best_of(client)) is not None]
            if found:
                return min(found, key=self.rank)
            if not self.check_refill():
                return None

    def skip(self, request):
        self.passed.add(request)

    def charge(self, client, units):
        before = self.q[client]
        self.q[client] -= units
        if before > 0 >= self.q[client] and self.overdraft(client):
            self.floor[client] = self.q[client] - self.overdraft(client)

    def expect(self, request):
        recent = self.outputs.get(request.client, [])[-5:]
        mean = (2 * sum(recent) + len(recent)) // (2 * len(recent)) if recent else 256
        return min(mean, request.max_tokens) if self.prepay else 0

    def on_admit(self, request, *, extend_len):
        self.remove(request)
        expected = self.expect(request)
        unpaid = sum(
            units for other, units in self.unpaid.items() if other.client == request.client
        )
        dear = self.cost.decode(request.input_len, 0, expected) if expected else 0
        if unpaid + dear <= fair.UNPAID * TOKEN:
            self.unpaid[request], expected = dear, 0
        self.prepaid[request] = expected
        prompt = self.cost.prefill(extend_len, request.input_len - extend_len)
        self.charge(request.client, prompt + self.cost.decode(request.input_len, 0, expected))

    def on_decode(self, request, *, before, tokens):
        start = max(before, self.prepaid[request])
        if before + tokens > start:
            self.charge(
                request.client,
                self.cost.decode(request.input_len, start, before + tokens - start),
            )

    def on_end(self, request, *, output_len, finished):
        self.unpaid.pop(request, None)
        expected = self.prepaid.pop(request)
        if output_len < expected:
            unused = expected - output_len
            self.q[request.client] += self.cost.decode(request.input_len, output_len, unused)
        if finished:
            self.outputs.setdefault(request.client, []).append(output_len)

    def credit(self, client):
        return self.q.get(client, 0)


def agree(left, right):
    """How many leading tokens are the same."""
    same = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        same += 1
    return same
