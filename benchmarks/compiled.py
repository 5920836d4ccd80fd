"""The compiled wheels of the current sources, for measurements beside pure Python.

`python -m benchmarks.compiled` prints the folder that they are installed in, to be put first in PYTHONPATH.
"""

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from shutil import rmtree

ROOT = Path(__file__).resolve().parents[1]
_HOME = ROOT / ".venvs" / "compiled"
_MADE_OF = (
    "src/**/*.py",
    "pyproject.toml",
    "lab/*",
    "scripts/build_backend.py",
    "scripts/compiled_wheel.py",
)


def installed() -> Path:
    """Return the folder of the wheels, which are first built, in some minutes, if the sources changed."""
    target, mark = _HOME / "installed", _HOME / "made_of"
    made_of = _digest()
    if not mark.exists() or mark.read_text() != made_of:
        rmtree(_HOME, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
        environment = {**os.environ, "FAIRHIT_COMPILE": "1"}
        wheel = [*pip, "wheel", "--no-deps", "-w", str(_HOME), str(ROOT), str(ROOT / "lab")]
        subprocess.run(wheel, check=True, env=environment, stdout=sys.stderr)
        made = map(str, _HOME.glob("fairhit*.whl"))
        install = [*pip, "install", "--no-deps", "--target", str(target), *made]
        subprocess.run(install, check=True, stdout=sys.stderr)
        mark.write_text(made_of)
    return target


def _digest() -> str:
    """Digest the sources of the wheels and the version of Python."""
    made_of = sha256(sys.version.encode())
    for pattern in _MADE_OF:
        for path in sorted(ROOT.glob(pattern)):
            made_of.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return made_of.hexdigest()


if __name__ == "__main__":
    print(installed())
