"""The reference page names every workload, format and setting."""

import re
from pathlib import Path

import pytest

from fairhit_lab.traces.importers import FORMATS
from fairhit_lab.traces.trace import FIELDS
from fairhit_lab.workloads import GENERATORS

PAGE = (Path(__file__).resolve().parents[3] / "docs/reference/traces.md").read_text()
PROSE = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
WORDS = set(re.findall(r"[\w-]+", " ".join(re.findall(r"`([^`]+)`", PROSE))))
# `-512` beside `overload-s4-35000-256` stands for its name in full.
SHORTENED = {"overload-s4-35000-512", "overload-s4-35000-768"}


@pytest.mark.parametrize("name", [*GENERATORS, *FORMATS])
def test_the_page_names_it_and_its_settings(name: str):
    settings = (GENERATORS.get(name) or FORMATS[name]).settings()

    assert name in WORDS | SHORTENED
    assert set(settings) - WORDS == set()


def test_the_page_names_every_field():
    assert {field for field in FIELDS if f"| `{field}` |" not in PAGE} == set()
