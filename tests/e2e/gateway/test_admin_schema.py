"""The admin surface, asked all that its own description allows, and much that it does not."""

import asyncio
import contextlib
import importlib.util

import pytest
from hypothesis import HealthCheck, Phase, given, settings

if importlib.util.find_spec("schemathesis") is None:
    pytest.skip("schemathesis is not installed", allow_module_level=True)

import schemathesis

from fairhit.gateway.settings import parse_worker_url
from tests.e2e.gateway.scripts import good
from tests.e2e.gateway.world import World, play

EXAMPLES = 12
KEY = {"Authorization": "Bearer of-this-test"}


def keep_here(case: schemathesis.Case) -> None:
    """An engine that the gateway would accept, and then probe, is on this machine."""
    if isinstance(case.body, dict) and "url" in case.body:
        with contextlib.suppress(ValueError):
            parse_worker_url(case.body["url"])
            case.body["url"] = "http://127.0.0.1:9"


def ask_all(url: str) -> int:
    """Call every operation, and check its answer against the description; the number of operations."""
    operations = [found.ok() for found in schemathesis.openapi.from_url(url).get_all_operations()]
    for operation in operations:

        @settings(
            max_examples=EXAMPLES, deadline=None, derandomize=True, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(case=operation.as_strategy())
        def answered(case: schemathesis.Case) -> None:
            keep_here(case)
            case.validate_response(case.call(headers=KEY), headers=KEY)

        answered()
    return len(operations)


def test_every_answer_of_the_admin_surface_is_as_described() -> None:
    async def story(world: World) -> None:
        url = f"http://127.0.0.1:{world.gateway.port}/openapi.json"
        assert await asyncio.to_thread(ask_all, url) == 14  # all but the description itself

    play(story, good, admin_api_key="of-this-test")
