"""SGLang's installer: torch stays the one for CPU, what is done is not repeated, failures are one line."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, in a checkout of its own."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    for name in ("install_sglang_cpu", "install_vllm_cpu"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    module = importlib.import_module("install_sglang_cpu")
    (tmp_path / "pyproject.toml").write_text("[project]")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module.machinery, "ROOT", tmp_path)
    monkeypatch.setattr(module, "PROOF", "print('it imports')")
    return module


@pytest.fixture
def env(tmp_path: Path) -> Path:
    """An environment whose python is this one."""
    folder = tmp_path / ".venvs" / "sglang"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    return folder


@pytest.fixture
def calls(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What pip is asked."""
    asked: list[list[str]] = []

    def pip(env: Path, step: int, what: str, arguments: list[str]) -> None:
        asked.append(arguments)

    monkeypatch.setattr(script, "pip", pip)
    monkeypatch.setattr(script.machinery, "pip", pip)
    return asked


def test_torch_is_named_wherever_another_might_come_in(script, env, calls):
    """pip with SGLang's own requirements, or torchvision's, would bring gigabytes of CUDA."""
    script.install(env)

    bare = [arguments for arguments in calls if "--no-deps" in arguments]
    (resolved,) = [arguments for arguments in calls if "--no-deps" not in arguments]
    assert [f"sglang=={script.SGLANG_VERSION}" in arguments for arguments in bare] == [True, False]
    assert script.TORCH in bare[1] and script.TORCH in resolved
    assert not any(name.startswith(("sglang", "torchvision")) for name in resolved)


def test_the_shims_are_imported_by_every_python_of_the_environment(script, env, calls):
    script.install(env)

    packages = env / "lib" / "python3.11" / "site-packages"
    (line,) = [path.read_text() for path in packages.glob("*.pth")]
    assert line == "import fairhit_sglang_cpu\n"
    assert (packages / "fairhit_sglang_cpu.py").read_text() == script.SHIM.read_text()


def test_what_is_done_is_not_done_again(script, env, calls):
    script.install(env)
    done = len(calls)

    script.install(env)
    assert len(calls) == done

    (script.ROOT / "pyproject.toml").write_text("[project]\nname = 'changed'")
    script.install(env)
    assert len(calls) == 2 * done


def test_an_environment_that_does_not_import_is_not_called_done(
    script, env, calls, monkeypatch, capsys
):
    monkeypatch.setattr(script, "PROOF", "import something_that_is_missing")

    assert script.main(["--venv", str(env)]) == 1

    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 and "No module named 'something_that_is_missing'" in said[0]
    assert not (env / "fairhit.stamp").exists()
