"""A build hook: the wheel's hot modules compiled to C by mypyc, about twice as fast, with the same results.

    HATCH_BUILD_HOOKS_ENABLE=1 pip install .

It takes a C compiler, Python's headers and some minutes, a third less than at -O2. Without the variable the
wheel is pure Python; an editable install always is. Every module stays beside its compiled form, so
tracebacks and `inspect` show the source.

Two things are not as in Python: a slice of bytes may not begin beyond its end (a SystemError), and a
value must be of the class that its annotation names, unless that is a protocol: also in tests.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# What schedules, routes, queues and simulates; folders below the package.
HOT = ("core", "schedulers", "routers", "dispatch", "sim", "metrics")
# What a request to the gateway passes through.
FORWARDING = (
    "additions", "admission", "answer_reader", "answers", "at_once", "breaker", "caller", "chunks",
    "exchange", "first_lines", "head_reader", "header_rules", "host", "identity", "incoming", "intake",
    "marks", "openai", "repeated", "requests", "retry", "segments", "settling", "upstream",
    "seeing/histogram", "seeing/recorder", "surface/chat", "surface/completions", "surface/prompts",
    "surface/usage",
)  # fmt: skip
# Where mypyc cannot follow: a class that extends a list, protocols that are checked at run time,
# dataclasses whose fields are final, that are made by `__new__`, or that are frozen and sent to another
# process.
LEFT_OUT = {
    "core/lazy_heap.py",
    "core/protocols.py",
    "core/events.py",
    "core/path_cache.py",
    "core/prefix_index.py",
    "core/request.py",
    "core/costs.py",
    "core/service.py",
    "sim/config.py",
    "sim/constants.py",
    "sim/models.py",
    "sim/host.py",
}
# Each module is a file of C, and as many are compiled at once as there are processors.
SETUP = """
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count

from mypyc.build import mypycify
from setuptools import setup
from setuptools.command.build_ext import build_ext


class Abreast(build_ext):
    def build_extensions(self):
        compile_one, link = self.compiler._compile, self.compiler.link_shared_object
        begun = []

        def link_compiled(*what, **how):
            for one in begun:
                one.result()
            link(*what, **how)

        with ThreadPoolExecutor(cpu_count()) as pool:
            self.compiler._compile = lambda *what: begun.append(pool.submit(compile_one, *what))
            self.compiler.link_shared_object = link_compiled
            super().build_extensions()


modules = mypycify(
    ["--config-file=pyproject.toml", *{files!r}], opt_level="1", debug_level="0", multi_file=True
)
build = {{"build_ext": Abreast}}
setup(name="fairlead-compiled", packages=[], ext_modules=modules, cmdclass=build)
"""


class CompiledWheel(BuildHookInterface[Any]):
    """Adds the compiled modules to a wheel and makes it one for this Python and machine."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile in a folder of its own; nothing is written beside the sources."""
        if version == "editable":
            return
        self._work = tempfile.TemporaryDirectory(prefix="fairlead-compiled-")
        work = Path(self._work.name)
        root = Path(self.root)
        for name in ("src", "pyproject.toml"):
            (work / name).symlink_to(root / name)
        (work / "setup.py").write_text(SETUP.format(files=hot_files(root)), encoding="utf-8")
        command = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", "built"]
        # mypy keeps its findings beside the sources if it is not told otherwise.
        subprocess.run(command, cwd=work, check=True, stdout=sys.stderr)
        built = work / "built"
        for module in sorted(built.rglob("*.so")):
            build_data["force_include"][str(module)] = str(module.relative_to(built))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """The wheel is written; the folder goes."""
        if version != "editable":
            self._work.cleanup()


def hot_files(root: Path) -> list[str]:
    """The sources to compile, relative to the checkout, in order."""
    package = root / "src" / "fairlead"
    hot = [
        path
        for part in HOT
        for path in sorted((package / part).glob("*.py"))
        if path.name != "__init__.py" and str(path.relative_to(package)) not in LEFT_OUT
    ]
    forwarding = [package / "gateway" / f"{name}.py" for name in FORWARDING]
    return [str(path.relative_to(root)) for path in (*hot, *forwarding)]
