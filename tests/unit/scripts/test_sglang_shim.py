"""What stands in for SGLang's kernels on a CPU: everything imports, and nothing pretends to compute."""

import importlib
import importlib.util
import sys
from pathlib import Path

import pytest

SHIM = Path(__file__).resolve().parents[3] / "scripts" / "sglang_cpu" / "fairhit_sglang_cpu.py"


@pytest.fixture(autouse=True)
def shim(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shim at work in this process, which forgets it afterwards."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    spec = importlib.util.spec_from_file_location("fairhit_sglang_cpu", SHIM)
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "sgl_kernel"]:
        del sys.modules[name]


def test_any_kernel_can_be_imported_by_name():
    found = importlib.import_module("sgl_kernel.kvcacheio")

    with pytest.raises(RuntimeError, match=r"sgl_kernel\.kvcacheio\.transfer_kv needs a GPU"):
        found.transfer_kv(1, to=2)


def test_scalar_types_are_left_to_sglang_s_own():
    """It falls back on types of its own if these cannot be imported; a stub of them would be wrong."""
    importlib.import_module("sgl_kernel")

    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("sgl_kernel.scalar_type")
