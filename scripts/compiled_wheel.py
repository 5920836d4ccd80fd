"""A build hook: the wheel's hot modules compiled to C by mypyc, about twice as fast, with the same results.

    pip install .            serving
    pip install . ./lab      and the laboratory

Both wheels are analysed as one program, so that calls between the packages are as fast as within one. Each
has the compiled modules of its own package, and a digest of the sources, by which the laboratory refuses to
run on another build of fairhit.

A C compiler and Python's headers are all that it takes: mypyc is installed for the build, and takes types
from our sources and the standard library alone, so the C is the same wherever it is made. Without a compiler,
or where compiling fails, the wheel is pure Python. FAIRHIT_COMPILE=0 forbids compiling; with
FAIRHIT_COMPILE=1 an obstacle is an error. An editable install is always pure. A file in the package records
what was done. Every module stays beside its compiled form, so tracebacks and `inspect` show the source.

Two things are not as in Python: a slice of bytes may not begin beyond its end (a SystemError), and a
value must be of the class that its annotation names, unless that is a protocol: also in tests.
"""

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Exact versions: others make other C, and what the build does abreast is no public interface of setuptools.
REQUIRED = ("mypy[mypyc]==2.4.1", "setuptools==82.0.1")
SETTING = "FAIRHIT_COMPILE"
# Beside the package's modules: "compiled", or why it is not. fairhit.built reads it.
RECORD = "built.txt"
# How much of a failure's last line is kept.
LONGEST_REASON = 200

# What schedules, routes, queues and simulates: folders below src.
SERVING, LAB = PACKAGES = ("fairhit", "fairhit_lab")
HOT = (
    "fairhit/core", "fairhit/core/cache", "fairhit/core/ledgers", "fairhit/core/waiting", "fairhit/policies",
    "fairhit/routers", "fairhit/routers/prefix_index", "fairhit/dispatch", "fairhit/dispatch/accounting",
    "fairhit_lab/baselines", "fairhit_lab/sim", "fairhit_lab/sim/engines", "fairhit_lab/sim/hardware",
    "fairhit_lab/sim/memory", "fairhit_lab/sim/routing", "fairhit_lab/metrics", "fairhit_lab/metrics/summary",
)  # fmt: skip
# What a request to the gateway passes through: modules below src/fairhit/gateway.
FORWARDING = (
    "api/endpoints/openai", "api/endpoints/prompts",
    "api/endpoints/usage", "api/injected_fields", "api/request_body", "api/response_body",
    "auth/access_control", "auth/header_options", "auth/header_rules", "auth/identity",
    "http/client_connection", "http/engine_connection", "http/head_cache", "http/head_reader",
    "http/read_budget", "http/request_parser", "http/response_head", "http/response_parser",
    "http/round_robin", "observability/metrics/histogram", "observability/metrics/recorder",
    "pool/circuit_breaker", "pool/retry", "prefix/segments", "proxy/admission", "proxy/exchange",
    "proxy/incoming_request", "proxy/interfaces",
)  # fmt: skip
# Where mypyc cannot follow: a class that extends a list, protocols that are checked at run time,
# dataclasses whose fields are final, that are made by `__new__`, or that are frozen and sent to another
# process.
LEFT_OUT = {
    "fairhit/core/cache/cache_view.py",
    "fairhit/core/costs.py",
    "fairhit/core/lazy_heap.py",
    "fairhit/core/policy.py",
    "fairhit/core/request.py",
    "fairhit/core/service.py",
    "fairhit/routers/prefix_index/interface.py",
    "fairhit_lab/sim/config.py",
    "fairhit_lab/sim/engines/interface.py",
    "fairhit_lab/sim/hardware/models.py",
    "fairhit_lab/sim/hardware/tables.py",
}
# mypy's: types of packages that happen to be installed would change the C.
FLAGS = ("--config-file=", "--no-site-packages", "--ignore-missing-imports")
# Each module is a file of C, and as many are compiled at once as there are processors.
SETUP = """
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count

from mypyc.build import mypycify
from setuptools import setup
from setuptools.command.build_ext import build_ext


class Abreast(build_ext):
    def build_extensions(self):
        own = {package!r}
        self.extensions = [one for one in self.extensions if one.name.split(".")[0] in (own, own + "__mypyc")]
        for one in self.extensions:
            # The table of another group's functions is declared in each of mypyc's files.
            one.extra_compile_args.append("-fcommon")
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


modules = mypycify({arguments!r}, opt_level="1", debug_level="0", multi_file=True, separate={groups!r})
build = {{"build_ext": Abreast}}
setup(name="fairhit-compiled", packages=[], ext_modules=modules, cmdclass=build)
"""


class CompiledWheel(BuildHookInterface[Any]):
    """Adds the compiled modules to a wheel and makes it one for this Python and machine."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile in a temporary folder; nothing is written beside the sources."""
        if version == "editable":
            return
        self._work = tempfile.TemporaryDirectory(prefix="fairhit-compiled-")
        work = Path(self._work.name)
        package = self.config.get("package", SERVING)
        root = checkout_of(Path(self.root))
        if root != Path(self.root):
            build_data["force_include"][str(root / "src" / package)] = package
        reason = obstacle() or compile_into(work, root, package)
        if reason is None:
            built = work / "built"
            for module in sorted(built.rglob("*.so")):
                build_data["force_include"][str(module)] = str(module.relative_to(built))
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
        elif setting() is True:
            raise RuntimeError(f"{SETTING}=1, but {reason}")
        record = work / RECORD
        record.write_text(reason or f"compiled {digest(root)}", encoding="utf-8")
        build_data["force_include"][str(record)] = f"{package}/{RECORD}"
        tell(f"this wheel is {'compiled' if reason is None else f'pure Python: {reason}'}")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the folder once the wheel is written."""
        if version != "editable":
            self._work.cleanup()


def setting() -> bool | None:
    """FAIRHIT_COMPILE: True demands compiling, False forbids it, None leaves it to the machine."""
    value = os.environ.get(SETTING, "")
    if value not in {"", "0", "1"}:
        raise ValueError(f"{SETTING}: expected 0 or 1, got {value!r}")
    return bool(int(value)) if value else None


def obstacle() -> str | None:
    """The reason not to compile, in a line; None where a file that includes Python.h compiles."""
    if setting() is False:
        return f"{SETTING}=0"
    if sys.implementation.name != "cpython":
        return f"mypyc compiles for CPython, this is {sys.implementation.name}"
    # As setuptools chooses it.
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    if shutil.which(compiler[0]) is None:
        return f"no C compiler ({compiler[0]})"
    include = {sysconfig.get_path("include"), sysconfig.get_path("platinclude")}
    done = subprocess.run(
        [*compiler, *(f"-I{path}" for path in sorted(include)), "-fsyntax-only", "-x", "c", "-"],
        input="#include <Python.h>\n", capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode == 0:
        return None
    return in_a_line(done.stderr, first="error") or f"{compiler[0]} ends with {done.returncode}"


def checkout_of(root: Path) -> Path:
    """The folder with the sources of both packages, for a build from it or from its `lab`."""
    return root if (root / "src").is_dir() else root.parent


def digest(root: Path) -> str:
    """A digest of all that the compiled modules of both packages depend on."""
    made_of = hashlib.sha256(f"{sys.version} {REQUIRED} {FLAGS}".encode())
    for name in hot_files(root):
        made_of.update(name.encode() + b"\0" + (root / name).read_bytes())
    return made_of.hexdigest()[:16]


def compile_into(work: Path, root: Path, package: str) -> str | None:
    """Compile the hot modules of `package` into `work`/built. The reason if that fails."""
    (work / "src").symlink_to(root / "src")
    files = hot_files(root)
    setup = SETUP.format(arguments=[*FLAGS, *files], groups=groups_of(files), package=package)
    (work / "setup.py").write_text(setup, encoding="utf-8")
    tell(f"compiling {package} to C, about a minute; {SETTING}=0 leaves it out")
    command = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", "built"]
    with (work / "log").open("w+", encoding="utf-8", errors="replace") as log:
        done = subprocess.run(command, cwd=work, check=False, stdout=log, stderr=log)
        log.seek(0)
        said = log.read()
    sys.stderr.write(said)
    if done.returncode == 0:
        return None
    return f"compiling failed: {in_a_line(said, first='error') or f'status {done.returncode}'}"


def groups_of(files: list[str]) -> list[tuple[list[str], str]]:
    """The files of each package and its name: mypyc makes one shared library a group."""
    groups = [([file for file in files if file.split("/")[1] == name], name) for name in PACKAGES]
    return [group for group in groups if group[0]]


def in_a_line(said: str, *, first: str) -> str:
    """The first line of a compiler's output with `first` in it, or its last."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    found = [line for line in lines if first in line.lower()] or lines[-1:]
    return found[0][:LONGEST_REASON] if found else ""


def tell(what: str) -> None:
    """Print a line, which pip shows with -v."""
    print(f"fairhit: {what}", file=sys.stderr, flush=True)


def hot_files(root: Path) -> list[str]:
    """The sources to compile, relative to the checkout, in order."""
    package = root / "src"
    hot = [
        path
        for part in HOT
        for path in sorted((package / part).glob("*.py"))
        if path.name != "__init__.py" and str(path.relative_to(package)) not in LEFT_OUT
    ]
    forwarding = [package / "fairhit" / "gateway" / f"{name}.py" for name in FORWARDING]
    return [str(path.relative_to(root)) for path in (*hot, *forwarding)]
