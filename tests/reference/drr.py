"""Adapted deficit round robin with its gate, the slow way: sort the ring, one quantum at a time."""

from fairhit.core.request import Request


class PrintedDRR:
    """Reference for the decisions of `fairhit.policies.drr.DRR`; `gated` off is Appendix C.2 as printed."""

    def __init__(self, *, quantum, cost, gated=True):
        self.quantum, self.cost, self.gated = quantum * 10**8, cost, gated
        self.deficit = {}
        self.queue: list[Request] = []
        self.place = {}  # of the clients in the ring
        self.turn = {}  # (round, place) of those with a deficit above 0
        self.joined = 0
        self.now = (0, 0)
        self.passed = set()

    def add(self, request):
        client = request.client
        self.deficit.setdefault(client, 0)
        self.queue.append(request)
        if client not in self.place:
            self.joined += 1
            self.place[client] = self.joined
            self.rank()

    def remove(self, request):
        self.queue.remove(request)
        if all(r.client != request.client for r in self.queue):
            del self.place[request.client]
        self.rank()

    def begin_pass(self):
        self.passed.clear()

    def rank(self):
        """Keep the turns of those that had one; give one to who has a deficit above 0 now."""
        rounds, at = self.now
        able = {c: place for c, place in self.place.items() if self.deficit[c] > 0}
        fresh = {c: (rounds if place > at else rounds + 1, place) for c, place in able.items()}
        self.turn = {c: self.turn.get(c, fresh[c]) for c in able}

    def next(self):
        while self.queue:
            self.rank()
            free = [(turn, c) for c, turn in self.turn.items() if c not in self.passed]
            if free:
                self.now, client = min(free)
                return min((r for r in self.queue if r.client == client), key=lambda r: r.order)
            if self.turn:
                if not self.gated and not all(c in self.passed for c in self.place):
                    self.refill()
                    continue
                return None
            self.refill()
        return None

    def refill(self):
        for client in self.deficit:
            if self.deficit[client] <= 0:
                self.deficit[client] += self.quantum

    def skip(self, request):
        self.passed.add(request.client)

    def on_admit(self, request, *, extend_len):
        self.deficit[request.client] -= self.cost.prefill(request.input_len)
        self.remove(request)

    def on_decode(self, request, *, before, tokens):
        self.deficit[request.client] -= self.cost.decode(request.input_len, before, tokens)
        self.rank()

    def credit(self, client):
        return self.deficit.get(client, 0)
