"""Every bound of docs/reference/invariants.md, searched a little by each run of the tests.

Numbers in brackets are the rows there. The worst ratio of gap to bound is printed (`pytest -s`) and
recorded with the test; `python -m benchmarks.theorems` searches for long.
"""

import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings, target

from tests.properties.theorems import THEOREMS

ROOT = Path(__file__).parents[2]
INVARIANTS = ROOT / "docs" / "reference" / "invariants.md"
RESULTS = [
    ROOT / "benchmarks" / "results" / name for name in ("theorems.json", "theorems_fair.json")
]

# Shrinking a violation takes minutes and is worth them only by hand.
searched = settings(
    max_examples=40,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.target],
    suppress_health_check=[HealthCheck.too_slow],  # drawing hundreds of requests on a busy machine
)


@pytest.mark.parametrize("theorem", THEOREMS, ids=lambda theorem: theorem.name)
def test_the_bound_holds(theorem, record_property):
    """[7-10, 15, 20-26, 36-38] No traffic found makes a gap larger than its bound."""
    worst = 0.0

    @searched
    @given(case=theorem.cases)
    def search(case):
        nonlocal worst
        ratio = float(theorem.ratio(**case))
        target(ratio)
        worst = max(worst, ratio)
        assert ratio <= 1, f"[{theorem.row}] {theorem.name}: {ratio:.3f} of {theorem.bound}"

    search()
    record_property("worst_ratio", worst)
    print(f"[{theorem.row}] {theorem.name}: at most {worst:.2f} of {theorem.bound}")  # noqa: T201
    # A search that gets nowhere near would hold whatever the policy did.
    assert worst > 0.1


def test_every_invariant_is_numbered_in_a_test():
    """The rows of the page are 1, 2, 3, ..., and a docstring of the tests begins with each of them."""
    rows = [int(row) for row in re.findall(r"^\| (\d+) \|", INVARIANTS.read_text(), re.MULTILINE)]
    cited = set()
    for path in (ROOT / "tests").rglob("*.py"):
        for numbers in re.findall(r'"""\s*\[(\d[\d, -]*)\]', path.read_text()):
            for part in numbers.split(","):
                first, _, last = part.partition("-")
                cited.update(range(int(first), int(last or first) + 1))

    assert rows == list(range(1, len(rows) + 1))
    assert cited == set(rows)


def test_the_invariants_quote_the_worst_ratios_of_the_committed_search():
    """The page's numbers are those of the two committed records, row by row."""
    rows = [row for path in RESULTS for row in json.loads(path.read_text())["rows"]]
    line = re.compile(r"^\| (.+?) \| `.+?` \| (0\.\d\d) \|", re.MULTILINE)
    quoted = dict(line.findall(INVARIANTS.read_text()))

    # The record is older than the word.
    names = [row["name"].replace("told", "notified") for row in rows]
    assert {
        name: f"{row['worst_ratio']:.2f}" for name, row in zip(names, rows, strict=True)
    } == quoted
    assert set(quoted) == {theorem.name for theorem in THEOREMS}
