"""A toy gateway over three engines: the public API of fairhit, and nothing else.

    python examples/embed_router.py

`crowd` sends a flood of requests with one long system prompt, `quiet` two requests with another. D2LPM
sends a request where most of its prompt is cached, until its client has used its quantum there.
"""

from fairhit import Request
from fairhit.routing import D2LPM, ApproximatePrefixIndex, ChunkedText, Dispatcher, Ticket, Usage

ENGINES = ("e1", "e2", "e3")
BYTES_PER_TOKEN = 4  # of the toy's texts
UNITS_PER_TOKEN = 10**8
QUANTUM = 1000  # tokens of service that a client may have at each engine before the next refill


class ToyGateway:
    """Routes requests; an event loop would send them, and call `answered` for each response."""

    def __init__(self) -> None:
        self.router = D2LPM(quantum=QUANTUM)
        self.dispatcher = Dispatcher(router=self.router, index=ApproximatePrefixIndex())
        for name in ENGINES:
            self.dispatcher.engine_up(name, models=["toy"])
        self.number = 0

    def ask(self, client: str, text: str) -> Ticket:
        """Choose an engine for a prompt; print the choice and what decided it."""
        self.number += 1
        body = text.encode()
        request = Request(
            id=f"{client}-{self.number}", client=client, prompt=ChunkedText().extended(body).chunks,
            input_len=len(body) // BYTES_PER_TOKEN, max_tokens=50, order=self.number,
        )  # fmt: skip
        credit = [self.router.deficit(client, name) // UNITS_PER_TOKEN for name in ENGINES]
        ticket = self.dispatcher.arrive(request, model="toy", text_len=len(body))
        cached = f"{ticket.matched_len:3} of {request.input_len} tokens cached there"
        print(f"{request.id:8} -> {ticket.worker}: {cached}; credit was {credit}")
        return ticket

    def answered(self, ticket: Ticket, output_len: int) -> None:
        """Replace the estimate by what the engine reports; here the estimate was right."""
        usage = Usage(ticket.request.input_len, output_len, ticket.matched_len)
        self.dispatcher.started(ticket)
        self.dispatcher.finished(ticket, usage, ran_us=1_000_000)


def main() -> None:
    """Route a flood and two other requests, lose an engine, and print what each client received."""
    gateway = ToyGateway()
    crowd, quiet = "You are a helpful assistant. " * 70, "Answer like a pirate would. " * 70
    for turn in range(8):
        gateway.answered(gateway.ask("crowd", f"{crowd}Question {turn}"), output_len=200)
        if turn in (2, 5):
            gateway.answered(gateway.ask("quiet", f"{quiet}Question {turn}"), output_len=20)
    lost = gateway.ask("quiet", f"{quiet}One more")
    print(f"{lost.worker} fails")
    for ticket in gateway.dispatcher.engine_down(lost.worker):
        gateway.dispatcher.failed(ticket)
        print(f"{ticket.request.id:8} -> {ticket.worker}: sent again")
    gateway.answered(lost, output_len=20)
    for client, account in gateway.dispatcher.ledger.accounts():
        service = account.service
        prompt = f"{service.extend_len} prompt tokens computed, {service.cached_len} cached"
        print(f"{client}: {prompt}, {service.output_len} emitted")


if __name__ == "__main__":
    main()
