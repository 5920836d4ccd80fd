"""The peers' installer: of an archive what is wanted, whole or not at all; without one the rest goes on."""

import importlib
import io
import sys
import tarfile
from pathlib import Path, PurePosixPath
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"
FILES = (
    "PKG-INFO", "tests/__init__.py", "tests/conftest.py", "tests/v1/core/test_scheduler.py",
    "tests/v1/data.bin", "tests/models/test_all.py", "vllm/__init__.py", "vllm/v1/request.py",
)  # fmt: skip


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    for name in ("install_peers", "install_vllm_cpu"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("install_peers")


@pytest.fixture
def env(tmp_path: Path) -> Path:
    """An environment whose python is this one."""
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").symlink_to(sys.executable)
    return tmp_path / "env"


def write_archive(path: Path, version: str) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name in FILES:
            member = tarfile.TarInfo(f"vllm-{version}/{name}")
            member.size = len(name)
            archive.addfile(member, io.BytesIO(name.encode()))


def found(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.py"))


def test_tests_and_the_newest_scheduler_are_unpacked_once(
    script: ModuleType, env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def fetch(_: Path, version: str, folder: Path) -> Path:
        asked.append(version)
        write_archive(folder / f"vllm-{version}.tar.gz", version)
        return folder / f"vllm-{version}.tar.gz"

    monkeypatch.setattr(script, "fetch", fetch)
    home = tmp_path / "home"
    home.mkdir()
    script.fetch_all(env, home)
    script.fetch_all(env, home)

    newest, installed = script.NEWEST_VERSION, script.VLLM_VERSION
    assert asked == [installed, newest]
    assert sorted(path.name for path in home.iterdir()) == [
        f"vllm-{installed}-tests", f"vllm-{newest}", f"vllm-{newest}-tests",
    ]  # fmt: skip
    tests = ["tests/__init__.py", "tests/v1/core/test_scheduler.py"]
    assert found(home / f"vllm-{installed}-tests") == tests
    assert found(home / f"vllm-{newest}") == ["vllm/__init__.py", "vllm/v1/request.py"]


def test_what_cannot_be_fetched_is_said_and_nothing_is_left(
    script: ModuleType, env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """pip is asked for real, of no index at all."""
    for name, value in (
        ("NO_INDEX", "1"),
        ("FIND_LINKS", str(tmp_path)),
        ("CONFIG_FILE", "/dev/null"),
    ):
        monkeypatch.setenv(f"PIP_{name}", value)
    home = tmp_path / "home"
    home.mkdir()

    script.fetch_all(env, home)

    out = capsys.readouterr().out
    for version in script.TESTED:
        assert f"skipped: vllm {version}: pip's indexes have no source distribution" in out
    assert list(home.iterdir()) == []


def test_an_index_that_takes_too_long_is_said_like_any_other(
    script: ModuleType, env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(script, "FETCH", "import time; time.sleep(60)")
    monkeypatch.setattr(script, "LIMIT_S", 0.1)

    script.fetch_all(env, tmp_path)

    assert "skipped: vllm 0.32.0: not here after 0 s" in capsys.readouterr().out


def test_pip_fetches_the_archive_and_builds_nothing(
    script: ModuleType, env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive that cannot be built, as it has no build files, from a folder that pip looks in."""
    for name, value in (
        ("NO_INDEX", "1"),
        ("FIND_LINKS", str(tmp_path)),
        ("CONFIG_FILE", "/dev/null"),
    ):
        monkeypatch.setenv(f"PIP_{name}", value)
    write_archive(tmp_path / "vllm-0.32.0.tar.gz", "0.32.0")
    home = tmp_path / "home"
    home.mkdir()

    archive = script.fetch(env, "0.32.0", home)

    assert archive == home / "vllm-0.32.0.tar.gz"
    assert archive.read_bytes() == (tmp_path / archive.name).read_bytes()


def test_no_path_leads_out_of_the_folder(script: ModuleType, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name in ("vllm-1/vllm/ok.py", "vllm-1/../../out.py"):
            archive.addfile(tarfile.TarInfo(name))

    script.unpack(
        tmp_path / "a.tar", tmp_path / "to" / "here", lambda path: bool(PurePosixPath(path))
    )

    assert [path.name for path in tmp_path.rglob("*.py")] == ["ok.py"]
