"""PyTorch's index is asked where pip's own have no CPU build of torch: real pip, tiny wheels, no network."""

import base64
import hashlib
import importlib
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from types import ModuleType

import pip
import pytest

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"
CPU, CUDA = "2.13.0+cpu", "2.13.0"

# A project that installs without building anything.
BACKEND = """
import pathlib, shutil

def build_editable(folder, config_settings=None, metadata_directory=None):
    return pathlib.Path(shutil.copy({wheel!r}, folder)).name
"""


def write_wheel(
    folder: Path, name: str, version: str, requires: tuple[str, ...] = (), extra: str = ""
) -> Path:
    """A wheel of one module, which says where it comes from."""
    folder.mkdir(parents=True, exist_ok=True)
    module = name.replace("-", "_")
    path = folder / f"{module}-{version}-py3-none-any.whl"
    record = f"{module}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    metadata += [f"Provides-Extra: {extra}"] * bool(extra)
    metadata += [f"Requires-Dist: {one}" for one in requires]
    files = {
        f"{module}.py": f"HOME = {str(folder)!r}\n",
        f"{record}/METADATA": "\n".join(metadata) + "\n",
        f"{record}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = []
    for file, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
        lines.append(f"{file},sha256={digest.decode()},{len(text.encode())}\n")
    files[f"{record}/RECORD"] = "".join(lines) + f"{record}/RECORD,,\n"
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in files.items():
            wheel.writestr(file, text)
    return path


def index(root: Path, *wheels: tuple[str, str, tuple[str, ...]]) -> str:
    """The URL of a simple index in a folder."""
    for name, version, requires in wheels:
        folder = root / name
        write_wheel(folder, name, version, requires)
        links = "".join(f'<a href="{one.name}">{one.name}</a>' for one in folder.glob("*.whl"))
        (folder / "index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")
    root.mkdir(exist_ok=True)
    return root.as_uri()


@pytest.fixture
def env(tmp_path: Path) -> Path:
    """A virtual environment of its own, whose pip is this one's."""
    home = tmp_path / "env"
    venv.create(home, with_pip=False)
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "pip").symlink_to(Path(pip.__file__).parent)
    return home


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The installer in a checkout of its own, with pip as it is on a fresh machine."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    for name in ("install_sglang_cpu", "install_vllm_cpu"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    module = importlib.import_module("install_vllm_cpu")
    root = tmp_path / "checkout"
    root.mkdir()
    wheel = write_wheel(tmp_path / "built", "fairhit", "0.1", extra="vllm")
    (root / "backend.py").write_text(BACKEND.format(wheel=str(wheel)))
    (root / "lab").mkdir()
    (root / "lab" / "pyproject.toml").touch()
    (root / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    monkeypatch.setattr(module, "ROOT", root)
    monkeypatch.setattr(module, "DISK_NEEDED", 0)
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    return module


ENGINE = ("vllm-cpu", "1", (f"torch=={CPU}", "petit"))
# What CUDA's torch calls itself, a newer one, and something that takes any.
PLAIN = (("torch", CUDA, ()), ("torch", "2.14.0", ()), ("petit", "1", ("torch>=2",)), ENGINE)


def torch_in(env: Path) -> str:
    """Version and origin of the torch that this environment imports."""
    code = "import torch, importlib.metadata as m; print(m.version('torch'), torch.HOME)"
    command = [env / "bin" / "python", "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("has_it", [False, True], ids=["plain index", "index with the CPU build"])
def test_the_cpu_build_comes_from_pytorch_where_pips_indexes_lack_it(
    script, env, monkeypatch, capsys, has_it
):
    """Requirements that want any torch, and a second install, leave it as it is."""
    tmp_path = env.parent
    build = ("torch", CPU, ())
    monkeypatch.setenv("PIP_INDEX_URL", index(tmp_path / "plain", *PLAIN, *[build] * has_it))
    pytorch = index(tmp_path / "pytorch", *[build] * (not has_it))
    monkeypatch.setattr(script, "TORCH_INDEX", pytorch)

    script.install(env, "1", ["vllm"])
    if not has_it:
        script.install(env, "1", ["dev"])  # `make test` after `make serve`

    source = tmp_path / ("plain" if has_it else "pytorch") / "torch"
    assert torch_in(env) == f"{CPU} {source}"
    said = [line for line in capsys.readouterr().out.splitlines() if "have no" in line]
    assert said == (
        []
        if has_it
        else [f"install: pip's indexes have no torch=={CPU}; using PyTorch's, {pytorch}"]
    )
    assert (env / "fairhit.stamp").exists()


def test_a_build_that_is_nowhere_is_one_line(script, env, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", index(tmp_path / "plain", *PLAIN))
    pytorch = index(tmp_path / "pytorch")
    monkeypatch.setattr(script, "TORCH_INDEX", pytorch)

    with pytest.raises(script.InstallError) as caught:
        script.install(env, "1", ["vllm"])

    assert f"torch=={CPU} from {pytorch}: " in str(caught.value) and "\n" not in str(caught.value)
    assert not (env / "fairhit.stamp").exists()


def test_the_default_is_the_index_that_pytorch_documents(script):
    assert script.TORCH_INDEX == "https://download.pytorch.org/whl/cpu"


def test_sglang_gets_its_torch_the_same_way(script, env, tmp_path, monkeypatch, capsys):
    """What it asks for by hand, and the rest of its install, is in test_install_sglang.py."""
    sglang = importlib.import_module("install_sglang_cpu")
    monkeypatch.setenv("PIP_INDEX_URL", index(tmp_path / "plain", *PLAIN))
    monkeypatch.setattr(script, "TORCH_INDEX", index(tmp_path / "pytorch", ("torch", CPU, ())))

    sglang.install_torch(env, sglang.TORCH)

    assert torch_in(env) == f"{CPU} {tmp_path / 'pytorch' / 'torch'}"
    assert "using PyTorch's" in capsys.readouterr().out
