"""A virtual environment that nothing but the documented command has installed into.

`python -m tests.e2e.wheel.fresh` makes one with every Python from 3.11 to 3.13 that it finds, and compares
what the compiled simulator writes with what the sources write. It takes some minutes for each.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
COMMAND = ("-m", "pip", "install", ".[gateway]", "./lab")  # docs/howto/operate-the-gateway.md
VERSIONS = ("3.11", "3.12", "3.13")
TRACE = ROOT / "examples" / "chat.jsonl"


def environment(**more: str) -> dict[str, str]:
    """Ours, without settings of Python and of fairhit."""
    ours = {name: text for name, text in os.environ.items() if not name.startswith("FAIRHIT_")}
    ours.pop("PYTHONPATH", None)
    return {**ours, **more}


def output(python: Path, *arguments: str, **more: str) -> str:
    """What this Python prints. Raises AssertionError with all of it if it fails."""
    done = subprocess.run(
        [python, *arguments], cwd=ROOT, env=environment(**more), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def install(home: Path, *, executable: str = sys.executable) -> tuple[Path, str]:
    """The Python of a new environment with the gateway in it, and what pip said."""
    if executable == sys.executable:
        venv.create(home, with_pip=True)
    else:
        output(Path(executable), "-m", "venv", str(home))
    python = home / "bin" / "python"
    return python, output(python, *COMMAND)


def packages(python: Path) -> Path:
    """The folder that its packages are in."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(output(python, "-c", code).strip())


def compare(executable: str, folder: Path) -> str:
    """Install with this Python, and simulate with the wheel and with the sources; a line."""
    python, _ = install(folder / "env", executable=executable)
    built = output(python, "-m", "fairhit", "--version").strip()
    assert built.endswith("(compiled)"), built
    written = []
    for name, more in (("compiled", {}), ("sources", {"PYTHONPATH": str(ROOT / "src")})):
        events, summary = folder / f"{name}.jsonl", folder / f"{name}.json"
        command = ("-m", "fairhit", "simulate", str(TRACE), "--replicas", "2")
        output(python, *command, "--events", str(events), "--summary", str(summary), **more)
        written.append((events.read_bytes(), summary.read_bytes()))
    assert written[0] == written[1] and len(written[0][0]) > 10_000
    return f"{built}, and writes the {len(written[0][0])} bytes that the sources write"


def runs(executable: str) -> bool:
    """Whether it is a Python, not pyenv's stand-in for one that PYENV_VERSION does not name."""
    done = subprocess.run([executable, "-c", ""], capture_output=True, check=False)
    return done.returncode == 0


def main() -> None:
    """Print a line for each version; those that are not found are named too."""
    for version in VERSIONS:
        executable = shutil.which(f"python{version}")
        if version == sysconfig.get_python_version():
            executable = sys.executable
        if executable is None or not runs(executable):
            sys.stdout.write(f"python{version}: not on this machine\n")
            continue
        with tempfile.TemporaryDirectory() as folder:
            sys.stdout.write(f"python{version}: {compare(executable, Path(folder))}\n")


if __name__ == "__main__":
    main()
