"""When the engines' model lists are read, and which models they are then taken to serve."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fairhit.errors import EngineFailed
from fairhit.gateway.http.engine_connection import EngineConnections
from fairhit.gateway.pool import model_catalog as listing
from fairhit.gateway.pool.model_catalog import ModelCatalog
from fairhit.gateway.pool.watched_engine import WatchedEngine

Answer = tuple[int, bytes]


def listed(*adapters: str, by: str = "vllm") -> Answer:
    """A base model and these."""
    base: list[dict[str, object]] = [{"id": "base", "owned_by": by, "parent": None}]
    more: list[dict[str, object]] = [
        {"id": name, "owned_by": by, "parent": "base"} for name in adapters
    ]
    return 200, json.dumps({"data": base + more}).encode()


class Story:
    """Engines that answer when the story says so."""

    def __init__(self, engines: int = 1) -> None:
        self.asked: list[asyncio.Future[Answer]] = []
        self.of: list[WatchedEngine] = []
        self.notified: list[frozenset[str] | None] = []
        self.watches = [
            WatchedEngine(engine=EngineConnections(f"http://e{n}:1"), probe_soon=asyncio.Event())
            for n in range(engines)
        ]
        self.listing = ModelCatalog(
            fetch=self._fetch, engines=lambda: self.watches, on_change=self._changed
        )
        for watch in self.watches:
            self.listing.reset(watch, listed())

    async def _fetch(self, watch: WatchedEngine, path: bytes, timeout_s: float) -> Answer:
        assert path == b"/v1/models"
        self.asked.append(asyncio.get_running_loop().create_future())
        self.of.append(watch)
        return await self.asked[-1]

    def _changed(self, watch: WatchedEngine) -> None:
        self.notified.append(self.listing.names(watch))

    async def read(self, *answers: Answer | Exception) -> None:
        """Refresh all lists once, with these answers."""
        round_ = self.listing.refresh()
        before = len(self.asked)
        while len(self.asked) < before + len(answers):
            await asyncio.sleep(0)
        for future, answer in zip(self.asked[before:], answers, strict=True):
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
        await round_


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_INTERVAL_S", 0.0)


def play(story: Callable[[Story], Coroutine[Any, Any, None]], engines: int = 1) -> None:
    async def run() -> None:
        await story(Story(engines))

    asyncio.run(run())


@pytest.mark.usefixtures("at_once")
def test_only_changed_names_are_notified() -> None:
    async def story(its: Story) -> None:
        await its.read(listed())
        assert its.notified == []
        await its.read(listed("a"))
        await its.read(listed("a"))
        await its.read(listed("b"))
        assert its.notified == [{"base", "a"}, {"base", "b"}]

    play(story)


@pytest.mark.usefixtures("at_once")
def test_an_engine_that_does_not_answer_keeps_its_models_and_holds_up_no_other() -> None:
    async def story(its: Story) -> None:
        await its.read(TimeoutError(), listed("a"))
        await its.read(EngineFailed("broke"), (500, b"no"))
        assert [its.listing.names(watch) for watch in its.watches] == [{"base"}, {"base", "a"}]

    play(story, engines=2)


def test_who_asks_before_a_round_has_begun_shares_it_and_who_asks_later_has_another() -> None:
    async def story(its: Story) -> None:
        first = its.listing.refresh()
        assert its.listing.refresh() is first
        while not its.asked:
            await asyncio.sleep(0)
        later = its.listing.refresh()
        assert later is not first
        its.asked[0].set_result(listed("a"))
        await first
        assert (its.notified, later.done()) == ([{"base", "a"}], False)
        its.listing.close()

    play(story)


@pytest.mark.usefixtures("at_once")
def test_a_list_from_an_engines_life_before_is_passed_over() -> None:
    async def story(its: Story) -> None:
        (watch,) = its.watches
        round_ = its.listing.refresh()
        while not its.asked:
            await asyncio.sleep(0)
        await asyncio.sleep(0.001)  # the clock goes on
        its.listing.reset(watch, listed("new"))
        its.asked[0].set_result(listed("old"))
        await round_
        assert (its.listing.names(watch), its.notified) == ({"base", "new"}, [])

    play(story)


@pytest.mark.usefixtures("at_once")
def test_an_adapter_that_sglang_has_evicted_counts_as_served_unless_another_engine_lists_it() -> (
    None
):
    async def story(its: Story) -> None:
        one, other = its.watches
        await its.read(listed("a", "b", by="sglang"), listed())
        await its.read(listed("b", by="sglang"), listed())
        assert its.listing.names(one) == {"base", "a", "b"}
        await its.read(listed("b", by="sglang"), listed("a"))
        assert its.listing.names(one) == {"base", "b"}
        await its.read(listed("b", by="sglang"), listed())
        assert its.listing.names(one) == {"base", "a", "b"}
        assert its.listing.names(other) == {"base"}  # vLLM has it no more
        its.listing.reset(one, listed("b", by="sglang"))
        assert its.listing.names(one) == {"base", "b"}

    play(story, engines=2)


@pytest.mark.usefixtures("at_once")
def test_the_model_that_an_operator_names_is_believed_whatever_is_listed() -> None:
    async def story(its: Story) -> None:
        its.watches[0].declared = "said"
        await its.read(listed("a"))
        assert its.listing.names(its.watches[0]) == {"said"}

    play(story)
