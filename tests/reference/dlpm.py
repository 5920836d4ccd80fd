"""Algorithm 1 as printed, with the repairs done the slow way: sort, walk, one quantum at a time."""

from fairhit.core.request import Request


class PrintedDLPM:
    """DLPM as printed in its paper; `fairhit.policies.dlpm.DLPM` must make the same decisions."""

    def __init__(self, *, cache, quantum, cost, weights=None):
        self.cache, self.cost = cache, cost
        self.quantum = lambda client: quantum * 10**8 * (weights or {}).get(client, 1)
        self.q = {}
        self.queue: list[Request] = []
        self.passed: set[Request] = set()

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

    def next(self):
        while True:
            by_prefix = sorted(
                self.queue,
                key=lambda r: (-min(self.cache.match_len(r.prompt), r.input_len - 1), r.order),
            )
            for request in by_prefix:
                if self.q[request.client] > 0 and request not in self.passed:
                    return request
            if not self.check_refill():
                return None

    def skip(self, request):
        self.passed.add(request)

    def on_admit(self, request, *, extend_len):
        self.remove(request)
        self.q[request.client] -= self.cost.prefill(extend_len)

    def on_decode(self, request, *, before, tokens):
        self.q[request.client] -= self.cost.decode(request.input_len, before, tokens)

    def credit(self, client):
        return self.q.get(client, 0)
