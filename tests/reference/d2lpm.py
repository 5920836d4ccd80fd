"""Algorithm 2 of arXiv:2501.14312v1, repaired (DESIGN 3.4), the slow way: every worker, every round."""

from fairhit.core.service import UNITS_PER_TOKEN


class SlowD2LPM:
    """Counters for every client and worker; the refill loops; nothing is forgotten."""

    def __init__(self, *, quantum, min_match, charge_input):
        self.quantum = quantum * UNITS_PER_TOKEN
        self.min_match = min_match
        self.charge_input = charge_input
        self.workers = []
        self.q = {}

    def add_worker(self, worker):
        self.workers.append(worker)

    def remove_worker(self, worker):
        self.workers.remove(worker)
        self.q = {at: q for at, q in self.q.items() if at[1] != worker}

    def deficit(self, client, worker):
        return self.q.get((client, worker), self.quantum)

    def best(self, client, matched):
        """Line 3-8 up to ties: the candidates with credit, of these those with the longest match."""
        while True:
            available = [w for w in matched if self.deficit(client, w) > 0]
            if available:
                break
            for worker in self.workers:
                if self.deficit(client, worker) <= 0:
                    self.q[client, worker] = self.deficit(client, worker) + self.quantum
        longest = max(matched[w] for w in available)
        if longest >= self.min_match:
            return [w for w in available if matched[w] == longest]
        return available

    def pay(self, client, worker, tokens):
        if worker in self.workers:
            q = self.deficit(client, worker) - tokens * UNITS_PER_TOKEN
            self.q[client, worker] = min(q, self.quantum)

    def prompt(self, request, extend_len):
        return request.input_len if self.charge_input else extend_len
