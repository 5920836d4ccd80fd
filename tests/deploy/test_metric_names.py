"""Metrics that dashboard, alert rules and pages name: the gateway or an engine's plug-in exports each.

`tests/e2e/gateway/test_metrics.py` compares the reference with a running gateway, so its names are taken for
the gateway's here. Names that the code spells out are those of the plug-ins, and of caches and tokenizers.
"""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = re.compile(r"^\| `(fairhit_[a-z_]+)` \|", re.MULTILINE)
DECLARED = re.compile(r'"(fairhit_[a-z0-9_]+)"')
WRITTEN = re.compile(r"\bfairhit_[a-z0-9_]+")
# Appended by Prometheus' formats to the name in the code.
PART = re.compile(r"_(total|bucket|sum|count)$")
LABORATORY = "fairhit_lab"


def declared() -> set[str]:
    """Names of metrics in the gateway's reference and in the code."""
    reference = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
    sources = (ROOT / "src" / "fairhit").rglob("*.py")
    spelt_out = {name for path in sources for name in DECLARED.findall(path.read_text("utf-8"))}
    return spelt_out.union(REFERENCE.findall(reference))


def unknown(text: str, known: set[str]) -> Iterator[str]:
    """Names in a text that no metric has; `fairhit_kv_*` stands for those that begin so."""
    for name in WRITTEN.findall(text):
        if name.endswith("_"):
            is_known = any(each.startswith(name) for each in known)
        else:
            is_known = bool({name, PART.sub("", name)} & {*known, LABORATORY})
        if not is_known:
            yield name


def test_every_metric_that_a_page_or_a_manifest_names_is_exported():
    known = declared()
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    pages += [path for path in (ROOT / "deploy").rglob("*") if path.is_file()]
    found = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in pages
        for name in unknown(page.read_text("utf-8"), known)
    ]

    assert len(known) > 40
    assert found == []


def test_a_name_that_is_not_exported_is_found():
    text = "fairhit_a_total fairhit_b_bucket fairhit_c fairhit_k_"

    assert list(unknown(text, {"fairhit_a", "fairhit_k_x"})) == ["fairhit_b_bucket", "fairhit_c"]
