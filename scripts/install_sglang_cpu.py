"""Makes the environment with a real SGLang that needs no GPU: what `make sglang` runs first.

SGLang's own requirements are for CUDA. So it is installed without them, beside a torch for CPU, then what of
them matters without a GPU, then the two shims of `sglang_cpu`. Like `install_vllm_cpu`, whose machinery
this uses: standard library only, interruptible, and a finished environment is left alone.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import install_vllm_cpu as machinery
from install_vllm_cpu import ROOT, InstallError, install_torch, pip

SGLANG_VERSION = "0.5.23"
# Not the one that its metadata names, which is for CUDA: its Rust tree runs beside 2.11 to 2.14.
TORCH = "torch==2.13.0+cpu"
# Its ordinary wheel wants CUDA; without requirements, and with our shim, the Python half of it imports.
TORCHVISION = "torchvision==0.28.0"
# What SGLang imports on its way to a text model on CPU. Versions where its metadata names one.
NEEDED = (
    "IPython", "aiohttp", "anthropic>=0.20.0", "apache-tvm-ffi==0.1.11", "compressed-tensors==0.18.0",
    "dill", "einops", "fastapi", "gguf", "interegular", "jsonschema", "loguru", "msgspec", "numpy",
    "openai-harmony==0.0.4", "openai==2.8.0", "orjson", "packaging", "partial_json_parser", "pillow",
    "prometheus-client>=0.20.0", "psutil", "pybase64", "pydantic", "python-multipart", "pyzmq>=25.1.2",
    "regex", "requests", "sentencepiece==0.2.1", "setproctitle", "soundfile==0.13.1", "tiktoken",
    "tokenizers==0.23.2", "tqdm", "transformers==5.19.0", "uvicorn>=0.51", "uvloop", "watchfiles",
    "xgrammar==0.2.7", "xxhash", "zstandard",
)  # fmt: skip
# For the tests that are run in this environment; the others are run in the other one.
TESTING = ("hypothesis>=6.100", "pytest>=8", "pytest-xdist>=3")

SHIM = Path(__file__).resolve().parent / "sglang_cpu" / "fairhit_sglang_cpu.py"
# What shows that all of it is there: the scheduler's process imports this, the server the rest.
PROOF = "import sglang.srt.managers.scheduler, sglang.srt.entrypoints.http_server"


def main(argv: Sequence[str] | None = None) -> int:
    """Install what is missing; 0 when everything is there."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    default = ROOT / ".venvs" / "sglang"
    parser.add_argument("--venv", type=Path, default=default, help="the environment")
    options = parser.parse_args(argv)
    return machinery.status_of(lambda: install(options.venv.absolute()))


def install(env: Path) -> None:
    """The whole environment, unless its stamp says that it is there already."""
    stamp, unfinished = env / "fairhit.stamp", env / "fairhit.unfinished"
    wanted = fingerprint()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    machinery.check_machine()
    stamp.unlink(missing_ok=True)
    machinery.make_venv(env)
    if unfinished.exists():
        machinery.drop_half_installed(env)
    unfinished.touch()
    sglang = f"sglang=={SGLANG_VERSION}"
    pip(env, 2, f"{sglang} and torchvision", ["--no-deps", sglang, TORCHVISION])
    install_torch(env, TORCH)
    # torch again, so that nothing which wants some torch brings another one.
    project = f"{ROOT}[sglang]"
    pip(env, 4, "requirements and fairhit[sglang]", [TORCH, *NEEDED, *TESTING, "-e", project])
    add_shim(env)
    prove(env)
    unfinished.unlink()
    stamp.write_text(wanted)


def fingerprint() -> str:
    """A digest of what the environment is made from; pip runs again after any change."""
    digest = hashlib.sha256(f"{sys.version_info[:2]}".encode())
    for path in (ROOT / "pyproject.toml", SHIM, Path(__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def add_shim(env: Path) -> None:
    """Python imports the shim whenever it starts in this environment, in child processes too."""
    machinery.announce(5, "shims for what is CUDA only")
    (packages,) = env.glob("lib/python*/site-packages")
    shutil.copyfile(SHIM, packages / SHIM.name)
    (packages / f"{SHIM.stem}.pth").write_text(f"import {SHIM.stem}\n")


def prove(env: Path) -> None:
    """The server's modules import. Raises InstallError with the last line of what they said."""
    command = [str(env / "bin" / "python"), "-c", PROOF]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["nothing"]
        raise InstallError(f"SGLang {SGLANG_VERSION} does not import on CPU: {said[-1]}")


if __name__ == "__main__":
    sys.exit(main())
