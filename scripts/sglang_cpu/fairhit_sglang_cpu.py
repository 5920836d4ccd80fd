"""Stand-ins for what SGLang needs on a machine without a GPU, in place before SGLang is imported.

`scripts/install_sglang_cpu.py` copies this file into the environment it makes, beside a .pth file that
imports it when Python starts: SGLang's own child processes need it, too. Two things are missing:

    torchvision   its C library wants CUDA and does not load beside a torch for CPU, and then its import
                  fails over operators that are not registered: their names are enough, for text
    sgl_kernel    has no build for CPU on the package index, and is imported by name. Nothing of it is
                  called with a model in float32; what is called after all says so and raises
"""

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Sequence
from typing import NoReturn

# Left out, so that SGLang falls back on its own scalar types.
NOT_THERE = "sgl_kernel.scalar_type"
# What torchvision registers meta functions for at import; the schemas are its own.
OPERATORS = {
    "torchvision::nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "torchvision::qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


class Kernels(types.ModuleType):
    """A module in which every name is a function that cannot run here."""

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        if name.startswith("__"):
            raise AttributeError(name)

        def absent(*_: object, **__: object) -> NoReturn:
            raise RuntimeError(f"{self.__name__}.{name} needs a GPU; this SGLang runs on CPU")

        return absent


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes sgl_kernel, and sees to the operators before torchvision is imported for the first time."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A spec for what is ours; torchvision's own loader does the rest."""
        if name == "torchvision":
            register_operators()
        if name.partition(".")[0] != "sgl_kernel" or name == NOT_THERE:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """See `importlib`."""
        return Kernels(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Run nothing."""


def register_operators() -> None:
    """Once a process; another import of torchvision after a failed one comes here again."""
    import torch

    for name, schema in OPERATORS.items():
        namespace, _, operator = name.partition("::")
        if not hasattr(getattr(torch.ops, namespace), operator):
            torch.library.define(name, schema)


def install() -> None:
    """First in line: on the index there is an sgl_kernel for CUDA, which would not load here."""
    if not any(type(finder).__name__ == Finder.__name__ for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())


install()
