"""The page `where-we-differ` counts the claims of the papers that do not simply hold, study by study."""

import csv
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/explanation/where-we-differ.md"


def test_each_study_whose_claims_differ_is_named_with_their_number():
    expected = {}
    for path in sorted((ROOT / "benchmarks/results/experiments").glob("*/verdicts.csv")):
        with path.open(encoding="utf-8") as file:
            claims = [row for row in csv.DictReader(file) if row["whose"] == "paper"]
        differ = sum(row["holds"] != "holds" for row in claims)
        if differ:
            expected[path.parent.name] = (differ, len(claims))
    headings = re.findall(
        r"^### \[([\w-]+)\]\(.*\): (\d+) of (\d+)$", PAGE.read_text("utf-8"), re.MULTILINE
    )

    assert {name: (int(some), int(of)) for name, some, of in headings} == expected
