"""The commit that a record names."""

import subprocess

import pytest

from fairhit.local import provenance


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository of a module and a record, in which `provenance` believes to be."""

    def git(*words: str) -> None:
        subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True)

    for name in ("src/code.py", "benchmarks/results/rows.json"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("1")
    git("init", "-q")
    git("add", ".")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "all")
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "src" / "code.py"))
    return tmp_path


def test_a_record_that_changes_is_no_change_of_the_code(checkout):
    clean = provenance.commit()
    (checkout / "benchmarks" / "results" / "rows.json").write_text("2")

    assert len(clean) == 12 and provenance.commit() == clean


def test_changed_code_is_marked(checkout):
    clean = provenance.commit()
    (checkout / "src" / "code.py").write_text("2")

    assert provenance.commit() == f"{clean}+"
