"""Two packages whose compiled modules share objects are of one build, or one line says so."""

from pathlib import Path

import pytest

from fairhit import built
from fairhit.errors import ConfigError
from fairhit.installing import install_command

ONE, OTHER, PURE = "compiled 0123", "compiled 4567", "no C compiler (cc)"


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes the records of both packages; None: there is none. Gives the second package's folder."""
    monkeypatch.setattr(built, "__file__", str(tmp_path / "fairhit" / "built.py"))

    def write(ours: str | None, theirs: str | None) -> Path:
        for name, text in (("fairhit", ours), ("fairhit_lab", theirs)):
            (tmp_path / name).mkdir()
            if text is not None:
                (tmp_path / name / built.RECORD).write_text(text)
        return tmp_path / "fairhit_lab"

    return write


@pytest.mark.parametrize(
    ("ours", "theirs"), [(ONE, ONE), (None, None), (PURE, PURE), (PURE, None), (None, PURE)]
)
def test_of_one_build_or_both_pure(packages, ours: str | None, theirs: str | None):
    built.require_same_build(packages(ours, theirs))


@pytest.mark.parametrize(
    ("ours", "theirs"), [(ONE, OTHER), (ONE, None), (None, ONE), (ONE, PURE), (PURE, ONE)]
)
def test_anything_else_is_refused(packages, ours: str | None, theirs: str | None):
    """A compiled class cannot be extended by Python, and its layout is not that of another build."""
    with pytest.raises(ConfigError) as refused:
        built.require_same_build(packages(ours, theirs))

    said = f"fairhit_lab was not built together with fairhit: {install_command('lab')}"
    assert str(refused.value) == said
