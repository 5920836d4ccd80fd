"""Engine time by client: each pass's duration divided among the requests in it, by its own model.

What a request adds is its own: the reading of its context, the attention of its prompt. The rest (the
weights, launches) is shared by the tokens that the pass computes, as the cost `engine` does.
"""

from collections import Counter
from collections.abc import Mapping

from fairhit.core.request import ClientId, RequestId
from fairhit_lab.events import PS_PER_US, Admit, Cancel, Decode, Event, Finish, Preempt

PS_PER_S = PS_PER_US * 10**6


class EngineSeconds:
    """Observes the events of one ideal engine.

    A token in memory costs each decode `context_ps`, in picoseconds; a prompt token `attention_ps`
    for each half of a pair with an earlier one, both as in the engine's step time.
    """

    def __init__(self, *, context_ps: int, attention_ps: float) -> None:
        self._context_ps = context_ps
        self._attention_ps = attention_ps
        self._contexts: Counter[ClientId] = Counter()  # tokens in memory of what runs
        self._inputs: dict[RequestId, int] = {}
        self._admitted: list[Admit] = []  # in the pass under way
        self._spent_ps: Counter[ClientId] = Counter()

    def __call__(self, event: Event) -> None:
        if isinstance(event, Decode):
            self._decode(event)
        elif isinstance(event, Admit):
            self._admitted.append(event)
            self._inputs[event.request] = event.input_len
            self._contexts[event.client] += event.input_len
        elif isinstance(event, Finish):
            self._contexts[event.client] -= self._inputs.pop(event.request) + event.output_len
        elif isinstance(event, (Cancel, Preempt)):
            assert event.request not in self._inputs, "only an engine that ends what it admits"

    def seconds(self) -> Mapping[ClientId, float]:
        """Return the engine time of each client so far, in seconds."""
        return {client: spent / PS_PER_S for client, spent in self._spent_ps.items()}

    def _decode(self, event: Decode) -> None:
        passes, earlier = event.passes, event.passes * (event.passes - 1) // 2
        total = passes * event.pass_ps + event.growth_ps * earlier
        own: Counter[ClientId] = Counter()
        computed: Counter[ClientId] = Counter()
        decoding = Counter(self._contexts)
        for admit in self._admitted:
            decoding[admit.client] -= admit.input_len
            computed[admit.client] += admit.extend_len
            pairs = admit.extend_len * (2 * admit.input_len - admit.extend_len)
            own[admit.client] += round(self._attention_ps * pairs)
        for client, count in event.counts.items():
            computed[client] += passes * count
            own[client] += self._context_ps * (passes * decoding[client] + count * earlier)
            self._contexts[client] += passes * count
        shared, tokens = total - sum(own.values()), sum(computed.values())
        for client, count in computed.items():
            self._spent_ps[client] += own[client] + shared * count // tokens
        self._admitted.clear()
