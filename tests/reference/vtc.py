"""Algorithms 2 and 3 of VTC as printed, with the repairs done the slow way: scan everything."""

from fairhit.core.request import Request


class PrintedVTC:
    """The reference whose decisions VTC, LCF and the VTCs with prediction must make.

    `lift` off is LCF; `predict(request, last_five)` is Alg. 3's predictor, None is Alg. 2.
    """

    def __init__(self, *, cost, lift=True, predict=None):
        self.cost, self.lift, self.predict = cost, lift, predict
        self.c = {}
        self.queue: list[Request] = []
        self.passed: set[Request] = set()
        self.last = None  # the last client left Q
        self.predicted = {}
        self.outputs = {}

    def add(self, request):
        client = request.client
        self.c.setdefault(client, 0)
        waiting = {r.client for r in self.queue}
        if self.lift and client not in waiting:
            levels = [self.c[i] for i in waiting] or [self.c.get(self.last, 0)]
            self.c[client] = max(self.c[client], min(levels))
        self.queue.append(request)

    def remove(self, request):
        self.queue.remove(request)
        self.passed.discard(request)
        if all(r.client != request.client for r in self.queue):
            self.last = request.client

    def begin_pass(self):
        self.passed.clear()

    def next(self):
        heads = {}
        for request in sorted(self.queue, key=lambda r: r.order):
            if request not in self.passed:
                heads.setdefault(request.client, request)
        return min(heads.values(), key=lambda r: (self.c[r.client], r.order), default=None)

    def skip(self, request):
        self.passed.add(request)

    def outputs_cost(self, request, start, end):
        return self.cost.decode(request.input_len, start, end - start)

    def on_admit(self, request, *, extend_len):
        self.remove(request)
        predicted = 0
        if self.predict:
            last_five = self.outputs.get(request.client, [])[-5:]
            predicted = min(self.predict(request, last_five), request.max_tokens)
        self.predicted[request] = predicted
        self.c[request.client] += self.cost.prefill(request.input_len)
        self.c[request.client] += self.outputs_cost(request, 0, predicted)

    def on_decode(self, request, *, before, tokens):
        for at in range(before, before + tokens):
            if at >= self.predicted[request]:
                self.c[request.client] += self.outputs_cost(request, at, at + 1)

    def on_end(self, request, *, output_len, finished):
        if (predicted := self.predicted.pop(request)) > output_len:
            self.c[request.client] -= self.outputs_cost(request, output_len, predicted)
        if finished:
            self.outputs.setdefault(request.client, []).append(output_len)

    def credit(self, client):
        return -self.c.get(client, 0)
