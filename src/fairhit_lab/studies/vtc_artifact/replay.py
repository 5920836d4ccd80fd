"""The VTC artifact's engine as settings of the simulator, and requests through it as callers see them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from fairhit_lab.events import Event, Finish, FirstToken
from fairhit_lab.metrics.vtc_table import Row
from fairhit_lab.sim.cluster import Cluster
from fairhit_lab.sim.config import SimConfig
from fairhit_lab.sim.engines.vtc_artifact import MAX_RUNNING
from fairhit_lab.traces.rows import runs
from fairhit_lab.traces.trace import TraceRow

ENGINE: Mapping[str, Any] = {
    "host": "artifact",
    "router": "round-robin",
    "max_running": MAX_RUNNING,
}
ON_A10G: Mapping[str, Any] = {"step_time": "a10g-2024:llama-2-7b", "kv_tokens": 10_000}
# Jitter of each pass's time, so that seeds differ: neither the engine nor the real trace has randomness.
# The first seed has none.
JITTER = 0.05


# The prompts are "Hello " n times over, which Llama's tokenizer makes n + 2 tokens: one to begin
# with, and one for the last space.
PROMPT_EXTRA = 2
# From the caller to the engine's loop (HTTP, tokenizer, two sockets) and back: the shortest
# latencies of an idle engine, less the prefill's own time.
TO_ENGINE_US, FROM_ENGINE_US = 8_000, 4_000
US_PER_S = 10**6


def replayed(calls: Iterable[TraceRow], config: SimConfig) -> list[Row]:
    """Simulate the calls and return a row for each, in their order; an unfinished one is aborted.

    Times and lengths of `calls` are the callers'; they may come in any order.
    """
    calls = list(calls)
    first_us: dict[str, int] = {}
    finish_us: dict[str, int] = {}

    def note(event: Event) -> None:
        if isinstance(event, FirstToken):
            first_us[event.request] = event.t_us + FROM_ENGINE_US
        elif isinstance(event, Finish):
            finish_us[event.request] = event.t_us + FROM_ENGINE_US

    # Stable: calls with equal times keep their order.
    arrived = sorted((_at_engine(call) for call in calls), key=lambda row: row.arrival_us)
    Cluster(config, arrived, [note]).run()
    return [
        Row(
            client=call.client,
            arrival_s=call.arrival_us / US_PER_S,
            first_token_s=first_us.get(call.id, 0) / US_PER_S,
            finish_s=finish_us.get(call.id, 0) / US_PER_S,
            input_len=call.prompt.length,
            output_len=call.output_len,
            aborted=call.id not in finish_us,
        )
        for call in calls
    ]


def _at_engine(call: TraceRow) -> TraceRow:
    return replace(
        call,
        arrival_us=call.arrival_us + TO_ENGINE_US,
        prompt=runs([(call.id, call.prompt.length + PROMPT_EXTRA)]),
    )
