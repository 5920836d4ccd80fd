"""`fair` in the gateway's queue: a tenant with a long cached prefix beside one that chats, stock engine."""

import asyncio
import json
from collections import Counter

import pytest

from fairhit.core.costs import ENGINE
from tests.e2e.gateway.scripts import Received, chat, whole
from tests.e2e.gateway.world import TIMEOUT_S, World, play

AGENT, CHAT = "agent", "chat"
PREFIX = (
    "context " * 15_000
)  # 30,000 tokens of four bytes, which all requests of the agent begin with
OUTPUTS = 64
ANSWERS = 300  # to count; the first ones compute the prefix
CALLERS = 6  # of each tenant, each of which asks again when it is answered


class OneSlotEngine:
    """Counts four bytes a token and caches what prompts began with; sums what each tenant costs it."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.spent: Counter[str] = Counter()
        self.answered = 0

    async def __call__(self, received: Received) -> None:
        text = received.json()["messages"][0]["content"]
        head = text[: len(PREFIX)]
        prompt_len = len(text) // 4
        cached_len = len(head) // 4 - 1 if head in self.seen else 0
        self.seen.add(head)
        self.answered += 1
        if 20 < self.answered <= 20 + ANSWERS:
            tenant = AGENT if text.startswith("context") else CHAT
            self.spent[tenant] += ENGINE.prefill(prompt_len - cached_len, cached_len)
            self.spent[tenant] += ENGINE.decode(prompt_len, 0, OUTPUTS)
        usage = {
            "prompt_tokens": prompt_len,
            "completion_tokens": OUTPUTS,
            "prompt_tokens_details": {"cached_tokens": cached_len},
        }
        answer = {"choices": [{"message": {"content": "a" * OUTPUTS}}], "usage": usage}
        await asyncio.sleep(0.001)
        whole(received, 200, json.dumps(answer).encode())


def agents_share(scheduler: str) -> float:
    """Share of the engine's time that the agent gets while both tenants always wait."""
    engine = OneSlotEngine()

    async def ask_on(world: World, tenant: str, caller: int) -> None:
        turn = 0
        while engine.answered < 20 + ANSWERS:
            turn += 1
            tail = f"{tenant} {caller} {turn} "
            text = PREFIX + tail if tenant == AGENT else (tail * 80)[:800]
            messages = [{"role": "user", "content": text}]
            body = chat(messages=messages, max_tokens=OUTPUTS)
            reply = await world.ask(body=body, authorization=f"Bearer {tenant}")
            assert reply.status == 200, reply.body

    async def story(world: World) -> None:
        callers = [ask_on(world, tenant, n) for tenant in (AGENT, CHAT) for n in range(CALLERS)]
        await asyncio.gather(*callers)
        shown = ""
        async with asyncio.timeout(TIMEOUT_S):  # a sample is taken once a second
            while 'fairhit_client_entitlement_ratio{client="agent"}' not in shown:
                await asyncio.sleep(0.05)
                shown = (await world.get("/metrics")).body.decode()
        assert ('part="context"' in shown) == (scheduler == "fair")

    play(
        story,
        engine,
        queue="gateway",
        scheduler=scheduler,
        max_engine_requests=1,
        tenant_api_key=tuple(f"{tenant}:{tenant}" for tenant in (AGENT, CHAT)),
    )
    return engine.spent[AGENT] / engine.spent.total()


@pytest.mark.parametrize(("scheduler", "least", "most"), [("fair", 0.42, 0.58), ("dlpm", 0.9, 1.0)])
def test_a_long_cached_prefix_buys_no_more_than_half_of_the_engine_under_fair(
    scheduler: str, least: float, most: float
) -> None:
    """By the papers' charge a request of the agent is the cheaper one; it costs 16 times as much."""
    assert least <= agents_share(scheduler) <= most
