"""Service of other clients while a request waits: the left-hand side of the latency bounds."""


class Waits:
    """Watches an engine. A request's bound is `fixed` and what `elders` says of those of its client
    that wait before it; `ratios` are service of one other client over it.
    """

    def __init__(self, *, elders=lambda _: 0, fixed=1):
        self.elders, self.fixed = elders, fixed
        self.served = {}
        self.waiting = {}  # request -> (what all had received when it came, its bound)
        self.new = {}  # client -> what all had received when its first request came
        self.longest_of = {}  # request's id -> the most that another received while it waited
        self.worst_ratio = 0
        self.longest_first = 0  # the most that another received before a client's first admission

    def watch(self, engine):
        engine.observers.append(self)
        engine.on_arrive, engine.on_admit = self.on_arrive, self.on_admit
        return engine

    def begin(self, client):
        pass

    def end(self, client):
        pass

    def serve(self, client, amount):
        self.served[client] = self.served.get(client, 0) + amount
        for request, (before, bound) in self.waiting.items():
            if request.client != client:
                past = self.served[client] - before.get(client, 0)
                self.longest_of[request.id] = max(self.longest_of.get(request.id, 0), past)
                self.worst_ratio = max(self.worst_ratio, past / bound)
        for newcomer, before in self.new.items():
            if before is not None and newcomer != client:
                past = self.served[client] - before.get(client, 0)
                self.longest_first = max(self.longest_first, past)

    def on_arrive(self, request):
        elders = [other for other in self.waiting if other.client == request.client]
        before = dict(self.served)
        self.waiting[request] = (before, self.fixed + self.elders(elders))
        self.new.setdefault(request.client, before)

    def on_admit(self, request):
        del self.waiting[request]
        self.new[request.client] = None
