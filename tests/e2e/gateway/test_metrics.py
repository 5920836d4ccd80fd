"""The metrics of a gateway that has served requests, compared with their reference and dashboard."""

import json
import re
from pathlib import Path

import pytest

from fairhit.engines import client_metrics
from tests.e2e.gateway.scripts import chat, good
from tests.e2e.gateway.world import World, play

ROOT = Path(__file__).resolve().parents[3]
NAME = re.compile(r"\bfairhit_[a-z_]+")
# Of a histogram Prometheus asks for these.
PARTS = re.compile(r"_(bucket|sum|count)$")


@pytest.fixture(scope="module")
def exposed() -> dict[str, str]:
    """The type of each metric by its name as Prometheus has it."""
    texts: list[str] = []

    async def story(world: World) -> None:
        await world.ask(body=chat(stream=True))
        assert (await world.ask(body=chat(model="unknown"))).status == 404
        texts.append((await world.get("/metrics")).body.decode())

    play(story, good, good, queue="gateway", share_url="redis://127.0.0.1:1")  # a closed port
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", texts[0], re.MULTILINE))


def test_every_metric_is_in_the_reference_with_its_type(exposed):
    page = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    written = dict(re.findall(r"^\| `(fairhit_[a-z_]+)` \| (\w+) \|", page, re.MULTILINE))

    assert written == exposed


def test_the_grafana_dashboard_asks_for_metrics_that_exist(exposed):
    text = (ROOT / "deploy/grafana/fairhit.json").read_text(encoding="utf-8")
    asked = {PARTS.sub("", name) for name in NAME.findall(text)}

    assert len(asked) > 20
    assert asked - set(exposed) - of_engines() == set()


def test_the_grafana_dashboard_shows_charge_and_measured_time_beside_one_another():
    """A tenant whose share of the time is above that of its charge consumes what it does not pay for."""
    dashboard = json.loads((ROOT / "deploy/grafana/fairhit.json").read_text(encoding="utf-8"))
    asked = {panel["title"]: panel for panel in dashboard["panels"] if "$engines" in str(panel)}
    charge, seconds = asked.values()

    assert "fairhit_charged_tokens_total{" in charge["targets"][0]["expr"]
    assert "fairhit_engine_seconds_total{" in seconds["targets"][0]["expr"]
    assert charge["gridPos"]["y"] == seconds["gridPos"]["y"]
    assert {"fairhit_charged_tokens_total", "fairhit_engine_seconds_total"} <= of_engines()


def of_engines() -> set[str]:
    """The metrics that an engine with the plug-in exposes, as a sample names them."""
    written = [metric.describe()[0] for metric in client_metrics._series()]
    return {each.name + ("_total" if each.type == "counter" else "") for each in written}


def test_the_grafana_dashboard_is_whole():
    """Panels with numbers of their own, on a grid without overlaps, each asking for something."""
    dashboard = json.loads((ROOT / "deploy/grafana/fairhit.json").read_text(encoding="utf-8"))
    panels = dashboard["panels"]
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]

    assert len({panel["id"] for panel in panels}) == len(panels) > 15
    assert len(set(cells)) == len(cells) and max(x for x, _ in cells) < 24
    assert all(target["expr"] for panel in panels for target in panel["targets"])
