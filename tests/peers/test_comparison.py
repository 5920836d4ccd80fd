"""The comparison of a peer's tests: an unexpected difference fails it, and so does a vanished one."""

from pathlib import Path

import pytest

pytest.importorskip("vllm")

from tests.peers import vllm_suite
from tests.peers.vllm_suite import (
    Comparison,
    Entry,
    idle,
    main,
    read_accepted,
    read_outcomes,
    stale,
    unpacked_tests,
)

STOCK = {"t.py::a": "passed", "t.py::b": "passed", "t.py::c": "failed", "t.py::d[x-1]": "passed"}


def compared(**ours: str) -> Comparison:
    outcomes = {f"t.py::{name}": outcome for name, outcome in ours.items()}
    return Comparison(version="0.32.0", policy="vtc", stock=STOCK, ours=STOCK | outcomes)


def test_what_passes_with_stock_alone_is_a_difference() -> None:
    """A test that fails with stock, too, is no difference; a test that vanished is."""
    assert list(compared().unexpected([])) == []
    assert compared(a="failed", c="refused").differences() == {"t.py::a": "failed"}
    (said,) = compared(a="failed").unexpected([])
    assert said == "0.32.0 vtc: t.py::a: failed, and passed with stock"
    assert compared(a="failed", b="refused").counts() == {"passed": 1, "failed": 1, "refused": 1}
    lost = Comparison(version="0.32.0", policy="vtc", stock=STOCK, ours={})
    assert set(lost.differences().values()) == {"missing"}


@pytest.mark.parametrize(
    ("entry", "is_covered"),
    [
        (Entry(tests="t.py::d*", outcome="failed", reason="r"), True),
        (Entry(tests="*", outcome="refused", reason="r"), False),
        (Entry(tests="t.py::d", outcome="failed", reason="r"), False),
        (Entry(tests="t.py::d[x-1]", outcome="failed", reason="r", versions=("0.33.0",)), False),
        (Entry(tests="t.py::d[x-1]", outcome="failed", reason="r", policies=("vtc",)), True),
        (Entry(tests="t.py::d[x-1]", outcome="failed", reason="r", policies=("lpm",)), False),
    ],
)
def test_an_accepted_difference_is_of_a_test_a_version_and_a_policy(
    entry: Entry, is_covered: bool
) -> None:
    found = compared(**{"d[x-1]": "failed"})
    assert (list(found.unexpected([entry])) == []) == is_covered
    claims = stale([entry], {("0.32.0", "vtc"): found.accepted})
    in_question = "0.32.0" in entry.versions and "vtc" in entry.policies
    assert bool(list(claims)) == (in_question and not is_covered)


def test_a_file_of_which_nothing_passes_is_said() -> None:
    folder = unpacked_tests("0.32.0")
    files = [folder / "t.py", folder / "u.py"]
    (said,) = idle(files, STOCK, "0.32.0")
    assert said == "0.32.0: nothing of u.py passes with the stock scheduler"


def test_without_the_peers_tests_the_run_ends_with_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(vllm_suite, "ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", ["vllm_suite", "--version", "0.33.0"])

    with pytest.raises(SystemExit):
        main()

    missing = (
        f"no tests at {tmp_path}/.venvs/vllm-0.33.0-tests: scripts/install_peers.py fetches them"
    )
    assert capsys.readouterr().err.endswith(f"error: {missing}\n")


def test_the_worst_of_a_tests_outcomes_counts(tmp_path: Path) -> None:
    path = tmp_path / "outcomes.jsonl"
    path.write_text('["a", "passed", ""]\n["a", "failed", "its teardown"]\n["b", "refused", ""]\n')
    assert read_outcomes(path) == {"a": "failed", "b": "refused"}


def test_each_entry_of_the_list_has_a_reason() -> None:
    entries, not_run = read_accepted()
    assert entries
    assert all(len(reason) > 20 for reason in [*not_run.values(), *(e.reason for e in entries)])
