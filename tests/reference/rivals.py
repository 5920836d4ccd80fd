"""k-LPM, WSC, LAS and Justitia the slow way: scan every request, keep every charge, count unit by unit."""

from fractions import Fraction

from fairhit_lab.baselines.wsc import ONE_REQUEST
from tests.reference.vtc import PrintedVTC


class Scan:
    """Waiting requests in a list; what each model does about them is in `next`."""

    def __init__(self):
        self.queue, self.passed = [], set()

    def add(self, request):
        self.queue.append(request)

    def remove(self, request):
        self.queue.remove(request)
        self.passed.discard(request)

    def begin_pass(self):
        self.passed.clear()

    def skip(self, request):
        self.passed.add(request)

    def candidates(self):
        return [request for request in self.queue if request not in self.passed]

    def on_admit(self, request, *, extend_len):
        self.remove(request)

    def on_decode(self, request, *, before, tokens):
        pass

    def credit(self, client):
        return 0


class PrintedKLPM(Scan):
    def __init__(self, *, cache, k):
        super().__init__()
        self.cache, self.k, self.admitted = cache, k, 0

    def next(self):
        if self.admitted % self.k == self.k - 1:
            return min(self.candidates(), key=lambda r: r.order, default=None)
        return min(self.candidates(), key=self.rank, default=None)

    def rank(self, request):
        return -min(self.cache.match_len(request.prompt), request.input_len - 1), request.order

    def on_admit(self, request, *, extend_len):
        self.remove(request)
        self.admitted += 1


class PrintedWSC(PrintedVTC):
    def __init__(self, *, cost):
        super().__init__(cost=cost)
        self.services, self.expected = {}, {}

    def service(self, request, outputs):
        return self.cost.prefill(request.input_len) + self.outputs_cost(request, 0, outputs)

    def on_admit(self, request, *, extend_len):
        self.remove(request)
        seen = self.services.get(request.client, [self.service(request, request.max_tokens)])
        self.expected[request] = sum(seen) // len(seen)
        prompt = self.cost.prefill(request.input_len)
        self.c[request.client] += prompt * ONE_REQUEST // self.expected[request]

    def on_decode(self, request, *, before, tokens):
        for at in range(before, before + tokens):
            for outputs, sign in (at, -1), (at + 1, 1):
                share = self.outputs_cost(request, 0, outputs) * ONE_REQUEST
                self.c[request.client] += sign * (share // self.expected[request])

    def on_end(self, request, *, output_len, finished):
        if finished:
            self.services.setdefault(request.client, []).append(self.service(request, output_len))


class PrintedLAS(Scan):
    def __init__(self, *, half_life):
        super().__init__()
        self.half_life, self.now, self.charges = half_life, 0, []

    def add(self, request):
        super().add(request)
        self.now = max(self.now, request.arrival_us)

    def next(self):
        heads = {}
        for request in sorted(self.candidates(), key=lambda r: r.order):
            heads.setdefault(request.client, request)
        served = {client: self.service(client) for client in heads}
        waited = {client: self.now - head.arrival_us for client, head in heads.items()}
        scores = {
            client: 0.8 * (1 - part(served, client)) + 0.2 * part(waited, client)
            for client in heads
        }
        return min(heads.values(), key=lambda r: (-scores[r.client], r.order), default=None)

    def on_end(self, request, *, output_len, finished):
        if finished:
            charge = request.input_len + 2 * output_len
            self.charges.append((request.client, charge, self.now))

    def service(self, client):
        """Exact where the ages are whole half-lives."""
        mine = [(charge, self.now - at) for one, charge, at in self.charges if one == client]
        return float(sum(Fraction(charge, 2 ** (age // self.half_life)) for charge, age in mine))

    def credit(self, client):
        return -round(self.service(client))


def part(values, client):
    least, most = min(values.values()), max(values.values())
    return (values[client] - least) / (most - least) if most > least else 0.0


class PrintedJustitia(Scan):
    """An active agent gets one unit of KV memory at a time, when there is one for each of them."""

    def __init__(self):
        super().__init__()
        self.virtual = self.rest = 0
        self.finish, self.active = {}, set()

    def agent(self, request):
        return request.client, request.routing_key or request.id

    def add(self, request):
        super().add(request)
        agent = self.agent(request)
        begin = max(self.finish.get(agent, 0), self.virtual)
        cost = sum(request.input_len + at for at in range(request.max_tokens))
        self.finish[agent] = begin + cost
        self.active.add(agent)

    def next(self):
        heads = {}
        for request in sorted(self.candidates(), key=lambda r: r.order):
            heads.setdefault(self.agent(request), request)
        return min(
            heads.values(), key=lambda r: (self.finish[self.agent(r)], r.order), default=None
        )

    def on_decode(self, request, *, before, tokens):
        self.rest += sum(request.input_len + at for at in range(before, before + tokens))
        while self.active and self.rest >= len(self.active):
            self.rest -= len(self.active)
            self.virtual += 1
            self.active = {agent for agent in self.active if self.finish[agent] > self.virtual}
        if not self.active:
            self.rest = 0
