"""Fetches vLLM's own tests, and the scheduler of a vLLM that has no build for CPU: what `make peers` runs.

Both are in vLLM's source distribution, which is unpacked in part and never built. pip would build one to
download it, so pip's own finder says where it is, and pip's own session reads it: whatever index, proxy
and credentials pip is configured with. Where it cannot be had this says so and succeeds: the tests are
then skipped with a reason, which CI does not accept. Standard library only.
"""

import argparse
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

import install_vllm_cpu as machinery
from install_vllm_cpu import ROOT, VLLM_VERSION, InstallError

# A scheduler that the plug-in is tested against, of a version that has no package for CPU yet.
NEWEST_VERSION = "0.33.0"
TESTED = (VLLM_VERSION, NEWEST_VERSION)  # whose own tests are run
HOME = ROOT / ".venvs"
LIMIT_S = 600.0  # for one archive

# Runs in the environment's interpreter, whose pip it is. Prints the file's name last.
FETCH = """
import hashlib, sys
from pathlib import Path
from pip._internal.commands import create_command
from pip._vendor.packaging.specifiers import SpecifierSet
version, folder = sys.argv[1:]
command = create_command("download")
options, _ = command.parse_args(["--no-deps", "--no-binary", ":all:", "vllm"])
with command.main_context():
    session = command.get_default_session(options)
    finder = command._build_package_finder(options, session)
    found = finder.find_best_candidate("vllm", SpecifierSet("==" + version)).best_candidate
    if found is None:
        sys.exit(f"pip's indexes have no source distribution of vllm {version}")
    answer = session.get(found.link.url_without_fragment)
    answer.raise_for_status()
    if found.link.hash_name == "sha256" and hashlib.sha256(answer.content).hexdigest() != found.link.hash:
        sys.exit(f"{found.link.filename} is not what the index says it is")
    path = Path(folder, found.link.filename)
    path.write_bytes(answer.content)
    print(path)
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Fetch what is missing; 0 but where the machine itself is at fault."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", help="whose pip fetches")
    options = parser.parse_args(argv)
    return machinery.status_of(lambda: fetch_all(options.venv.absolute()))


def fetch_all(env: Path, home: Path = HOME) -> None:
    """Unpack the tests of each version, and the newest scheduler; what is already there stays."""
    for version in TESTED:
        wanted = {home / f"vllm-{version}-tests": is_of_tests}
        if version == NEWEST_VERSION:
            wanted[home / f"vllm-{version}"] = is_of_package
        if all(target.is_dir() for target in wanted):
            continue
        print(f"install: vLLM {version}'s own tests, from its source distribution", flush=True)
        try:
            archive = fetch(env, version, home)
        except InstallError as error:
            print(f"install: they will be skipped: {error}", flush=True)
            continue
        for target, is_wanted in wanted.items():
            unpack(archive, target, is_wanted)
        archive.unlink()


def fetch(env: Path, version: str, folder: Path) -> Path:
    """Download the source distribution. Raises InstallError with what pip complained of."""
    try:
        done = subprocess.run(
            [str(env / "bin" / "python"), "-c", FETCH, version, str(folder)],
            capture_output=True, text=True, check=False, timeout=LIMIT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise InstallError(f"vllm {version}: not here after {LIMIT_S:.0f} s") from None
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    if done.returncode or not lines:
        raise InstallError(f"vllm {version}: {lines[-1] if lines else 'no reason given'}")
    return Path(lines[-1])


def is_of_tests(path: PurePosixPath) -> bool:
    """The tests of the engine's core, without the conftest over them, which imports what they do not need."""
    top, *rest = path.parts
    return top == "tests" and (rest[:1] == ["v1"] or rest in (["__init__.py"], ["utils.py"]))


def is_of_package(path: PurePosixPath) -> bool:
    """The package."""
    return path.parts[0] == "vllm"


def unpack(archive: Path, target: Path, is_wanted: Callable[[PurePosixPath], bool]) -> None:
    """Unpack the archive's wanted Python files into `target`, which then is complete or not there."""
    if target.exists():
        return
    partial = target.with_name(f"partial-{target.name}")
    shutil.rmtree(partial, ignore_errors=True)
    with tarfile.open(archive) as members:
        for member in members:
            path = PurePosixPath(*PurePosixPath(member.name).parts[1:])
            file = members.extractfile(member) if member.isfile() else None
            if file is None or path.suffix != ".py" or ".." in path.parts or not is_wanted(path):
                continue
            (partial / path).parent.mkdir(parents=True, exist_ok=True)
            (partial / path).write_bytes(file.read())
    partial.rename(target)


if __name__ == "__main__":
    sys.exit(main())
