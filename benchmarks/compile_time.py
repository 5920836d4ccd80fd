"""The CPU time of compiling both wheels, by folder of the packages.

Caveat first: CPU time with one compiler at a time, so that a busy machine matters less; an installation
runs as many as there are processors. The gains: gateway_path_compiled.json and simulator_compiled.json.
"""

import os
import resource
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from pathlib import Path

import mypyc

from benchmarks.record import write_rows

ROOT = Path(__file__).resolve().parents[1]
MAKE_C = """
import sys
sys.path.insert(0, {scripts!r})
from pathlib import Path
from compiled_wheel import FLAGS, groups_of, hot_files
from mypyc.build import mypycify
files = hot_files(Path({root!r}))
mypycify([*FLAGS, *files], opt_level="1", debug_level="0", multi_file=True, separate=groups_of(files))
"""


def cpu_s(command: list[str], folder: Path) -> float:
    """Run a command; return the CPU seconds of it and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(folder: Path) -> list[dict[str, object]]:
    """Compile in `folder`; return a row for mypyc itself, then one for each folder of the packages."""
    (folder / "src").symlink_to(ROOT / "src")
    code = MAKE_C.format(scripts=str(ROOT / "scripts"), root=str(ROOT))
    rows: list[dict[str, object]] = [
        {
            "what": "mypyc",
            "modules": 0,
            "cpu_s": round(cpu_s([sys.executable, "-c", code], folder), 1),
        }
    ]
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    runtime = Path(mypyc.__file__).parent / "lib-rt"
    includes = [f"-I{path}" for path in (sysconfig.get_path("include"), runtime, "build")]
    spent: Counter[str] = Counter()
    modules: Counter[str] = Counter()
    for file in sorted((folder / "build").glob("__native_fairhit*___*.c")):
        part = "/".join(file.name.removeprefix("__native_").split("___")[:2])
        command = [
            *compiler,
            "-c",
            "-O1",
            "-g0",
            "-fPIC",
            "-w",
            *includes,
            str(file),
            "-o",
            "one.o",
        ]
        spent[part] += cpu_s(command, folder)
        modules[part] += 1
    rows += [
        {"what": part, "modules": modules[part], "cpu_s": round(took, 1)}
        for part, took in spent.most_common()
    ]
    return rows


def main() -> None:
    """Measure, print, and write the rows."""
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder))
    for row in rows:
        print(" ".join(f"{key}={value}" for key, value in row.items()))
    write_rows("compile_time", rows)


if __name__ == "__main__":
    main()
