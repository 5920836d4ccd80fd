"""The build of a wheel: what it requires, what keeps it from compiling, and the line that says so."""

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
# C compilers: each finds Python's headers or not, and compiles nothing.
NO_HEADERS = 'echo "<stdin>:1:10: fatal error: Python.h: No such file or directory" >&2; exit 1'
NOTHING_ELSE = (
    'case "$*" in *-fsyntax-only*) exit 0;; esac; echo "x.c: error: disk full" >&2; exit 1'
)


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    monkeypatch.delenv("FAIRHIT_COMPILE", raising=False)
    monkeypatch.delenv("CC", raising=False)
    return importlib.import_module("compiled_wheel")


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes a shell script the C compiler."""

    def is_now(script: str) -> None:
        program = tmp_path / "cc"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("CC", str(program))

    return is_now


@pytest.fixture
def checkout(tmp_path: Path, hook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with one module to compile."""
    root = tmp_path / "checkout"
    core = root / "src" / "fairhit" / "core"
    core.mkdir(parents=True)
    for folder in (core.parent, core):
        (folder / "__init__.py").touch()
    (core / "one.py").write_text("def twice(n: int) -> int:\n    return 2 * n\n")
    monkeypatch.setattr(hook, "HOT", ("fairhit/core",))
    monkeypatch.setattr(hook, "FORWARDING", ())
    return root


def built(hook: ModuleType, root: Path, version: str = "standard") -> tuple[dict[str, Any], str]:
    """What the hook adds to the wheel, and the record that it leaves in it."""
    data: dict[str, Any] = {"force_include": {}}
    one = hook.CompiledWheel(str(root), {}, None, None, str(root / "dist"), "wheel")
    one.initialize(version, data)
    inside = {name: source for source, name in data["force_include"].items()}
    record = inside.get("fairhit/built.txt")
    said = Path(record).read_text() if record else ""
    one.finalize(version, data, "")
    data["inside"] = sorted(inside)
    return data, said


def test_with_a_compiler_and_headers_nothing_is_in_the_way(hook):
    assert hook.obstacle() is None


def test_each_obstacle_is_a_line(hook, compiler, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler -m64")
    assert hook.obstacle() == "no C compiler (no-such-compiler)"

    compiler(NO_HEADERS)
    assert hook.obstacle() == "<stdin>:1:10: fatal error: Python.h: No such file or directory"

    monkeypatch.setenv("FAIRHIT_COMPILE", "0")
    assert hook.obstacle() == "FAIRHIT_COMPILE=0"

    monkeypatch.setenv("FAIRHIT_COMPILE", "yes")
    with pytest.raises(ValueError, match=r"^FAIRHIT_COMPILE: expected 0 or 1, got 'yes'$"):
        hook.obstacle()


def test_mypyc_is_required_where_a_wheel_is_compiled_and_nowhere_else(hook, monkeypatch):
    """An editable install, a source distribution and a machine without a compiler do without."""
    monkeypatch.chdir(ROOT)
    backend = importlib.import_module("build_backend")

    assert set(hook.REQUIRED) <= set(backend.get_requires_for_build_wheel())
    assert not set(hook.REQUIRED) & set(backend.get_requires_for_build_editable())
    assert not set(hook.REQUIRED) & set(backend.get_requires_for_build_sdist())

    monkeypatch.setenv("CC", "no-such-compiler")
    assert not set(hook.REQUIRED) & set(backend.get_requires_for_build_wheel())


def test_without_a_compiler_the_wheel_is_pure_and_has_the_reason(hook, checkout, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")

    data, said = built(hook, checkout)

    assert said == "no C compiler (no-such-compiler)"
    assert data["inside"] == ["fairhit/built.txt"] and "pure_python" not in data


def test_where_compiling_fails_the_wheel_is_pure_and_has_the_reason(
    hook, checkout, compiler, capfd
):
    compiler(NOTHING_ELSE)

    data, said = built(hook, checkout)

    assert said == "compiling failed: x.c: error: disk full"
    assert data["inside"] == ["fairhit/built.txt"] and "pure_python" not in data
    told = [line for line in capfd.readouterr().err.splitlines() if line.startswith("fairhit: ")]
    assert told == [
        "fairhit: compiling fairhit to C, about a minute; FAIRHIT_COMPILE=0 leaves it out",
        f"fairhit: this wheel is pure Python: {said}",
    ]


def test_demanded_and_not_possible_is_an_error(hook, checkout, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setenv("FAIRHIT_COMPILE", "1")

    with pytest.raises(RuntimeError, match=r"^FAIRHIT_COMPILE=1, but no C compiler"):
        built(hook, checkout)


def test_an_editable_install_is_left_as_it_is(hook, checkout):
    data, said = built(hook, checkout, "editable")

    assert (data["inside"], said) == ([], "")


def test_the_laboratorys_wheel_has_its_package_from_beside_its_project(hook, checkout, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    lab = checkout / "lab"
    lab.mkdir()
    data: dict[str, Any] = {"force_include": {}}
    settings = {"package": "fairhit_lab"}
    one = hook.CompiledWheel(str(lab), settings, None, None, str(lab / "dist"), "wheel")
    one.initialize("standard", data)
    one.finalize("standard", data, "")

    assert data["force_include"][str(checkout / "src" / "fairhit_lab")] == "fairhit_lab"
    assert "fairhit_lab/built.txt" in data["force_include"].values()


def test_the_digest_is_of_every_hot_source(hook, checkout):
    before = hook.digest(checkout)
    assert before == hook.digest(checkout)

    (checkout / "src" / "fairhit" / "core" / "one.py").write_text("x = 1\n")
    assert before != hook.digest(checkout)


def test_every_folder_and_module_of_the_lists_is_there(hook):
    """A folder that was renamed would be left out of the wheel's compiled modules without a word."""
    sources = ROOT / "src"

    assert [name for name in hook.HOT if not list((sources / name).glob("[!_]*.py"))] == []
    assert [name for name in hook.LEFT_OUT if not (sources / name).is_file()] == []
    assert [name for name in hook.hot_files(ROOT) if not (ROOT / name).is_file()] == []
    assert {str(Path(name).parent) for name in hook.LEFT_OUT} <= set(hook.HOT)
