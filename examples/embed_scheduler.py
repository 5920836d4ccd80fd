"""A toy engine with a fair queue: the public API of fairhit, and nothing else.

    python examples/embed_scheduler.py

Two clients send prompts of token ids; `crowd` floods, `quiet` sends two requests. In each step the
engine fills its batch from the queue, computes what the cache lacks, and emits one token a request.
"""

from hashlib import sha256

from fairhit import BlockCache, FairQueue, Request, make_policy

BLOCK = 16  # tokens in a KV block
MEMORY = 192  # tokens of running requests, outputs included
BLOCKS = 24  # KV blocks that stay cached


def block_hashes(tokens: list[int]) -> list[str]:
    """Return the chained hashes of the prompt's full blocks: equal hashes mean equal prefixes."""
    hashes, chain = [], sha256()
    for end in range(BLOCK, len(tokens) + 1, BLOCK):
        chain.update(repr(tokens[end - BLOCK : end]).encode())
        hashes.append(chain.hexdigest())
    return hashes


class ToyEngine:
    """Keeps every prompt block cached until memory is short, then evicts the oldest."""

    def __init__(self) -> None:
        self.cache = BlockCache(block_size=BLOCK)
        self.queue = FairQueue(make_policy("dlpm", cache=self.cache, quantum=64))
        self.stored: dict[str, None] = {}  # block hashes, oldest first
        self.running: dict[Request, int] = {}  # outputs still to emit

    def submit(self, number: int, client: str, tokens: list[int], max_tokens: int) -> None:
        """Queue a request."""
        self.queue.add(
            Request(
                id=f"{client}-{number}", client=client, prompt=block_hashes(tokens),
                input_len=len(tokens), max_tokens=max_tokens, order=number,
            )
        )  # fmt: skip

    def step(self) -> list[tuple[str, int]]:
        """Run one forward pass; return the ids admitted, each with its cached tokens."""
        admitted = []
        self.queue.begin_pass()
        while request := self.queue.propose():
            used = sum(one.input_len + one.max_tokens for one in self.running)
            if used + request.input_len + request.max_tokens > MEMORY:
                self.queue.skip(request)  # does not fit now; smaller ones may
                continue
            # The last prompt token is always computed: its logits give the first output.
            cached = min(self.cache.match_len(request.prompt) * BLOCK, request.input_len - 1)
            self.queue.admit(request, extend_len=request.input_len - cached)
            self.store(request.prompt)
            self.running[request] = request.max_tokens
            admitted.append((request.id, cached))
        for request in list(self.running):
            self.queue.decode(request, 1)
            self.running[request] -= 1
            if not self.running[request]:
                del self.running[request]
                self.queue.finish(request)
        return admitted

    def store(self, blocks: list[str]) -> None:
        """Cache the blocks; each change moves waiting requests that share them in the queue."""
        for block in blocks:
            if self.stored.pop(block, self) is self:
                self.cache.insert(block)
            self.stored[block] = None
        while len(self.stored) > BLOCKS:
            oldest = next(iter(self.stored))
            del self.stored[oldest]
            self.cache.evict(oldest)


def main() -> None:
    """Print which request is admitted in which step, and what each client received."""
    engine = ToyEngine()
    shared = list(range(64))  # the crowd's requests share four blocks
    for number in range(6):
        engine.submit(number, "crowd", [*shared, *range(1000 * number, 1000 * number + 20)], 8)
    for number in (6, 7):
        engine.submit(number, "quiet", list(range(9000 + 100 * number, 9040 + 100 * number)), 4)
    step = 0
    while len(engine.queue) or engine.running:
        for name, cached in engine.step():
            print(f"step {step:2}: {name:8} admitted, {cached:2} tokens cached")
        step += 1
    for client in ("crowd", "quiet"):
        service = engine.queue.service(client)
        prompt = f"{service.extend_len} prompt tokens computed, {service.cached_len} cached"
        print(f"{client}: {prompt}, {service.output_len} emitted")


if __name__ == "__main__":
    main()
