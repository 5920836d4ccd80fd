"""Describing a trace: figures by hand on small ones, published ones on the public data."""

from random import Random

import pytest
from tests.lab.traces.public_data import DATA, needs_data

from fairhit.core.cache.token_runs import Runs
from fairhit_lab.traces.describe import describe
from fairhit_lab.traces.importers import FORMATS
from fairhit_lab.traces.rows import row
from fairhit_lab.workloads import GENERATORS


def small(*prompts, **more):
    return [
        row(f"r{n}", client=f"c{n % 2}", at_s=n, prompt=prompt, output_len=10, **more)
        for n, prompt in enumerate(prompts)
    ]


def test_figures_of_a_small_trace():
    found = describe(
        small([("A", 100)], [("B", 50)], [("A", 60), ("C", 40)], [("A", 100), ("D", 10)])
    ).as_json()

    assert (found["requests"], found["clients"], found["duration_s"]) == (4, 2, 3)
    assert found["arrival_cv"] == 0
    assert found["input_tokens"]["mean"] == 90
    assert (found["input_tokens"]["p50"], found["input_tokens"]["p99"]) == (100, 110)
    # 60 of the third prompt and 100 of the fourth, of 360 tokens.
    assert found["prefix_share"] == pytest.approx(160 / 360, abs=1e-4)
    assert [one["client"] for one in found["per_client"]] == ["c0", "c1"]


def test_service_shares_are_in_the_client_view():
    """Input + 2 * output: 120 + 20 of 200 + 60."""
    found = describe(small([("A", 100)], [("B", 50)], [("C", 60)])).as_json()

    assert [one["service_share"] for one in found["per_client"]] == [0.7407, 0.2593]


def test_an_output_is_cached_behind_its_prompt():
    first, second = (
        row("a", client="c", at_s=0, prompt=[("A", 10)], output_len=5, output=[("O", 5)]),
        row("b", client="c", at_s=1, prompt=[("A", 10), ("O", 5), ("B", 5)], output_len=5),
    )

    assert describe([first, second]).all.cached == 15


def test_token_ids_share_prefixes_too():
    def ids(name, *tokens):
        one = row(name, client="c", at_s=0, prompt=[("A", 1)], output_len=1)
        return type(one)(
            id=name,
            client="c",
            arrival_us=0,
            prompt=Runs([(tokens, 0, len(tokens))]),
            output_len=1,
            max_tokens=1,
        )

    assert describe([ids("a", 1, 2, 3), ids("b", 1, 2, 4), ids("c", 2, 3)]).all.cached == 2


def test_octaves_cover_every_length():
    found = describe(small([("A", 1)], [("B", 3)], [("C", 9)])).all.input.octaves()

    assert found == [(1, 1, 1), (2, 3, 1), (4, 7, 0), (8, 15, 1)]


def test_nothing_is_described_as_nothing():
    found = describe([]).as_json()

    assert (found["requests"], found["rate_per_s"], found["prefix_share"]) == (0, 0, 0)


def test_without_prefixes_no_share_is_claimed():
    assert describe(small([("A", 1)]), prefixes=False).as_json()["prefix_share"] is None


@pytest.mark.parametrize(
    ("name", "settings", "share"),
    [("tot", {"branches": (4,)}, 0.99), ("judge", {"branches": (16,), "merge": False}, 0.91)],
)
def test_prefix_shares_of_the_programs(name, settings, share):
    rows = GENERATORS[name].rows(Random(0), **settings)

    assert describe(rows).all.prefix_share == pytest.approx(share, abs=0.005)


PUBLISHED = [
    ("mooncake", ["mooncake/conversation.jsonl.gz"], {"spread": 3.0}, 7689, 0.357),
    ("mooncake", ["mooncake/synthetic.jsonl.gz"], {"program": "first"}, 2600, 0.438),
    ("agentic", ["agentic_sessions/sessions.jsonl.gz"], {}, 30_640, 0.962),
]


@needs_data
@pytest.mark.parametrize("case", PUBLISHED, ids=lambda case: case[1][0])
def test_prefix_shares_of_the_public_traces(case):
    """The data folder's description was computed on the blocks; ours on the segments made of them."""
    name, files, settings, requests, share = case
    rows = FORMATS[name].rows([str(DATA / file) for file in files], Random(0), **settings)
    found = describe(rows)

    assert found.all.requests == requests
    assert round(found.all.prefix_share, 3) == share
