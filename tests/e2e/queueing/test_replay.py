"""A run of the gateway, recorded at its dispatcher, decides the same when it is replayed in virtual time."""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from fairhit.core.service import Weights
from fairhit.dispatch import Dispatcher, Ticket
from fairhit.errors import FairhitError
from fairhit.gateway import server
from fairhit.gateway.factory import make_router, queue_rules
from fairhit.gateway.settings import GatewaySettings
from fairhit.routers.prefix_index.approximate import ApproximatePrefixIndex
from fairhit_lab.sim.kernel import Kernel
from tests.e2e.gateway.scripts import Received, begin_stream, chat, chunk, events
from tests.e2e.gateway.world import World, play

# Everything that the gateway tells its dispatcher in these runs.
CALLS = (
    "arrive", "started", "emitted", "finished", "remember", "refused", "cancelled", "failed",
    "engine_up", "engine_down", "set_accepting", "observed", "unobserved",
)  # fmt: skip
# Request, engine, cached tokens of its prompt as the dispatcher believed.
Decision = tuple[str, str, int]
Call = tuple[int, str, tuple[Any, ...], dict[str, Any]]


class _Own(NamedTuple):
    """A ticket, and the outputs that it had so far."""

    request: str
    output_len: int


class Recorded(Dispatcher):
    """A dispatcher that notes each call from outside, with its time, and each decision."""

    calls: list[Call]
    decisions: list[Decision]
    settings: GatewaySettings

    def __init__(self, *, on_ready: Callable[[Ticket], None], **parts: Any) -> None:
        self.calls, self.decisions = [], []
        self._inside = False
        super().__init__(on_ready=lambda ticket: on_ready(self._decided(ticket)), **parts)

    def _decided(self, ticket: Ticket) -> Ticket:
        self.decisions.append((ticket.request.id, ticket.worker, ticket.matched_len))
        return ticket

    def __getattribute__(self, name: str) -> Any:
        method = super().__getattribute__(name)
        if name not in CALLS or super().__getattribute__("_inside"):
            return method

        def call(*arguments: Any, **named: Any) -> Any:
            at_us = round(asyncio.get_running_loop().time() * 1e6)
            # The gateway counts outputs on the ticket.
            plain = tuple(
                _Own(each.request.id, each.output_len) if isinstance(each, Ticket) else each
                for each in arguments
            )
            self.calls.append((at_us, name, plain, named))
            self._inside = True
            try:
                result = method(*arguments, **named)
            finally:
                self._inside = False
            if name in {"arrive", "failed"}:
                ticket = result or arguments[0]
                if ticket.worker:
                    self._decided(ticket)
            return result

        return call


def replayed(recorded: Recorded) -> list[Decision]:
    """Repeat the calls at their times, by the simulator's clock, on a new dispatcher: its decisions."""
    settings, weights = recorded.settings, Weights(recorded.settings.weights)
    decisions: list[Decision] = []
    tickets: dict[str, Ticket] = {}

    def decided(ticket: Ticket) -> None:
        decisions.append((ticket.request.id, ticket.worker, ticket.matched_len))

    dispatcher = Dispatcher(
        router=make_router(settings, weights),
        index=ApproximatePrefixIndex(capacity=settings.max_tree_size),
        max_in_flight=settings.max_client_requests,
        rules=queue_rules(settings, weights),
        on_ready=decided,
    )

    def make(call: Call) -> None:
        _, name, arguments, named = call
        if name == "arrive":
            request = replace(arguments[0])
            try:
                ticket = dispatcher.arrive(request, **named)
            except FairhitError:
                return
            tickets[request.id] = ticket
            if ticket.worker:
                decided(ticket)
            return
        given = list(arguments)
        if given and isinstance(given[0], _Own):
            own, given[0] = given[0], tickets[given[0].request]
            given[0].output_len = own.output_len
        with suppress(FairhitError):
            getattr(dispatcher, name)(*given, **named)
            if name == "failed" and given[0].worker:
                decided(given[0])

    kernel = Kernel()
    start_us = recorded.calls[0][0]
    for call in recorded.calls:
        kernel.at(call[0] - start_us, 0, make, call)
    kernel.run()
    return decisions


class Slots:
    """An engine that runs a few requests at a time, in order of arrival, and reports its load."""

    def __init__(self, slots: int, seed: int) -> None:
        self.free = asyncio.Semaphore(slots)
        self.running = self.waiting = 0
        self.rng = random.Random(seed)

    async def __call__(self, received: Received) -> None:
        self.waiting += 1
        async with self.free:
            self.waiting -= 1
            self.running += 1
            try:
                if self.rng.random() < 0.05:
                    received.writer.transport.abort()
                    return
                begin_stream(received)
                for event in events(usage=True):
                    chunk(received, event)
                    await asyncio.sleep(self.rng.uniform(0, 0.004))
                chunk(received, b"")
            finally:
                self.running -= 1

    def metrics(self) -> bytes:
        free = 0.2 if self.running > 2 else 0.9
        return (
            f"vllm:num_requests_running {self.running}\nvllm:num_requests_waiting {self.waiting}\n"
            f"vllm:kv_cache_usage_perc {1 - free}\n"
            'vllm:cache_config_info{block_size="16",num_gpu_blocks="40"} 1\n'
        ).encode()


async def ask(world: World, number: int) -> None:
    """Ask as one of three clients with one of four prefixes each; each tenth caller leaves early."""
    client = "abbccc"[number % 6]
    text = f"Instructions of {client}, {number % 4}. " * 40 + f"Question {number}."
    body = chat(
        messages=[{"role": "user", "content": text}],
        stream=True,
        stream_options={"include_usage": True},
    )
    connection = await world.connect()
    connection.send("/v1/chat/completions", body, x_smg_tenant_id=client)
    with suppress(TimeoutError, asyncio.IncompleteReadError):
        await asyncio.wait_for(connection.reply(), 0.02 if number % 10 == 9 else 30)
    connection.reset()


@pytest.mark.parametrize("scheduler", ["dlpm", "fair"])
def test_a_recorded_run_decides_the_same_in_virtual_time(
    scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three engines, one of which dies; 240 requests of three clients that share prefixes; some leave."""
    made: list[Recorded] = []

    def making(**parts: Any) -> Recorded:
        made.append(Recorded(**parts))
        return made[-1]

    monkeypatch.setattr(server, "Dispatcher", making)
    slots = [Slots(number, seed=number) for number in (2, 3, 4)]

    async def story(world: World) -> None:
        made[0].settings = world.gateway.settings
        for engine, each in zip(world.engines, slots, strict=True):
            engine.metrics = each.metrics
        rng = random.Random(0)

        asked = []
        for number in range(240):
            asked.append(asyncio.create_task(ask(world, number)))
            await asyncio.sleep(rng.uniform(0, 0.004))
            if number == 120:
                world.engines[0].stop()
        await asyncio.gather(*asked)

    play(
        story,
        *slots,
        scheduler=scheduler,
        trust_tenant_header=True,
        load_interval_secs=0.02,
    )

    (recorded,) = made
    kinds = {name for _, name, _, _ in recorded.calls}
    assert kinds >= {
        "arrive",
        "started",
        "finished",
        "cancelled",
        "failed",
        "observed",
        "engine_up",
    }
    assert len(recorded.decisions) > 200
    assert len({worker for _, worker, _ in recorded.decisions}) == 3
    assert replayed(recorded) == recorded.decisions
