"""A scheduler under one policy; requests are letters: "aab" are those of clients a, a and b."""

from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.fair_queue import FairQueue
from fairhit.core.request import Request
from fairhit.core.service import UNITS_PER_TOKEN
from fairhit.policies import make_policy
from fairhit_lab.baselines import ALL_SCHEDULERS


class Queue:
    """Ten input tokens and at most ten outputs a request by default; nothing is cached."""

    def __init__(self, name, **settings):
        self.tree = RadixTree()
        self.policy = make_policy(name, cache=self.tree, policies=ALL_SCHEDULERS, **settings)
        self.scheduler = FairQueue(self.policy, max_skips=None)
        self.requests = []

    def wait(self, clients, *, input_len=10, max_tokens=10, prompt=None, routing_key=""):
        for client in clients:
            order = len(self.requests)
            request = Request(
                id=str(order),
                client=client,
                prompt=prompt or (order,),
                input_len=input_len,
                max_tokens=max_tokens,
                order=order,
                routing_key=routing_key,
            )
            self.requests.append(request)
            self.scheduler.add(request)

    def admit(self, number=1_000, *, too_large=()):
        """Admit up to `number` in a scheduling pass; return the admitted clients, in order.

        The clients, or the requests by number, in `too_large` do not fit.
        """
        self.scheduler.begin_pass()
        admitted = ""
        while len(admitted) < number and (request := self.scheduler.propose()):
            if request.client in too_large or request.id in too_large:
                self.scheduler.skip(request)
                continue
            self.scheduler.admit(request, extend_len=1)
            admitted += request.client
        return admitted

    def end(self, number, *, outputs, how="finish"):
        """The request that came as `number` emits this much and ends."""
        self.scheduler.decode(self.requests[number], outputs)
        getattr(self.scheduler, how)(self.requests[number])

    def credit(self, client):
        return self.policy.credit(client) / UNITS_PER_TOKEN
