"""Several ideal engines behind D2LPM, and the service of clients that wait at all of them."""

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.cache.radix_tree import RadixTree
from tests.properties.traffic import CAPACITY
from tests.reference.engine import IdealEngine


class AtWorkers:
    """Passes on to the gaps what happens while a client is backlogged at `needed` workers or more."""

    def __init__(self, needed, gaps):
        self.needed, self.gaps = needed, gaps
        self.places = {}

    def at(self, worker):
        """The observer of one worker's engine."""
        return _AtWorker(self, worker)

    def begin(self, client, worker):
        self.places.setdefault(client, set()).add(worker)
        if len(self.places[client]) == self.needed:
            self.gaps.begin(client)

    def end(self, client, worker):
        if len(self.places[client]) == self.needed:
            self.gaps.end(client)
        self.places[client].remove(worker)


class _AtWorker:
    def __init__(self, everywhere, worker):
        self.everywhere, self.worker = everywhere, worker

    def begin(self, client):
        self.everywhere.begin(client, self.worker)

    def end(self, client):
        self.everywhere.end(client, self.worker)

    def serve(self, client, amount):
        self.everywhere.gaps.serve(client, amount)


def run_cluster(traffic, *, workers, router, policy, observers=None, steps=None, **options):
    """Route each arrival with the truth about every cache; step all workers together.

    `policy(cache)` is a new policy for each of them; `options` are the engines'.
    """
    names = [f"w{number}" for number in range(workers)]
    engines = {}
    for name in names:
        router.add_worker(name)
        tree = RadixTree()
        engines[name] = IdealEngine(
            policy=policy(tree),
            tree=tree,
            checks_tree=False,
            **options,
            capacity=CAPACITY,
            observers=[observers.at(name)] if observers else [],
            on_finish=lambda request, extend_len, name=name: router.true_up(
                request, name, extend_len=extend_len, output_len=request.max_tokens
            ),
        )
    todo = list(traffic)
    step = 0
    while todo or any(engine.running or len(engine.scheduler) for engine in engines.values()):
        if step == steps:
            break
        while todo and todo[0].step <= step:
            request = todo.pop(0).request
            matched = {name: engines[name].tree.match_len(request.prompt) for name in names}
            worker = router.route(request, matches=PrefixMatches.of_each(matched))
            extend_len = request.input_len - min(matched[worker], request.input_len - 1)
            router.dispatch(request, worker, extend_len=extend_len)
            engines[worker].arrive(request)
        for engine in engines.values():
            engine.advance()
        step += 1
    return engines
