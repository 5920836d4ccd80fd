"""The container file's own commands, run where there is no container runtime: in a folder, as they stand."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fairhit.local.engine_process import free_ports
from tests.deploy import containerfile
from tests.deploy.containerfile import ROOT
from tests.e2e.deploy.processes import plain_environment, running, status_of, until

pytestmark = pytest.mark.e2e

HOME = "/opt/fairhit"  # in the image


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A folder with only the files that the build copies."""
    source = tmp_path_factory.mktemp("source")
    for path in containerfile.copied():
        place = source / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / path).is_dir():
            shutil.copytree(ROOT / path, place, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / path, place)
    return source


@pytest.fixture(scope="module")
def image(source, tmp_path_factory):
    """The content of the image's /opt/fairhit."""
    target = tmp_path_factory.mktemp("image") / "fairhit"
    own_python = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # The compiled wheel is built once, by tests/e2e/wheel; and nothing is to be installed by apt-get here.
    arguments = {**containerfile.arguments(), "COMPILED": "0"}
    environment = plain_environment(**arguments, PATH=own_python)
    for command in containerfile.named("RUN"):
        subprocess.run(
            ["/bin/sh", "-c", command.text.replace(HOME, str(target))],
            cwd=source,
            env=environment,
            check=True,
        )
    return target


def environment(image: Path, port: int) -> dict[str, str]:
    """The image's environment with a free port, and without Python's variables of this process."""
    settings = {**containerfile.variables(), "FAIRHIT_GATEWAY_PORT": str(port)}
    settings["FAIRHIT_GATEWAY_HOST"] = "127.0.0.1"
    settings["PATH"] = settings["PATH"].replace(HOME, str(image)).replace("$PATH", "/usr/bin:/bin")
    return settings


def healthy(image: Path, port: int) -> bool:
    (check,) = containerfile.named("HEALTHCHECK")
    program, *arguments = check.words()
    command = [str(image / "bin" / program), *arguments]
    done = subprocess.run(command, env=environment(image, port), capture_output=True, check=False)
    return done.returncode == 0


def test_it_starts_without_settings_is_healthy_and_writes_nothing(image, tmp_path):
    (port,) = free_ports(1)
    before = sorted(path for path in image.rglob("*"))
    (entry,), (command,) = containerfile.named("ENTRYPOINT"), containerfile.named("CMD")
    program = [str(image / "bin" / entry.words()[0]), *command.words()]
    with running(program, {**environment(image, port), "HOME": str(tmp_path)}):
        until(lambda: status_of(port, "/health") == 200)
        assert healthy(image, port)
        assert status_of(port, "/readiness") == 503, "it has no engine"
        assert status_of(port, "/metrics") == 200

    assert not healthy(image, port)
    assert sorted(path for path in image.rglob("*")) == before
    assert list(tmp_path.iterdir()) == []


def test_the_wheel_has_every_file_of_the_package(source, image):
    """Pages, styles and JSON, too, whose absence only a request reveals."""
    (installed,) = image.glob("lib/python*/site-packages/fairhit")
    package = source / "src" / "fairhit"
    kept = {path.relative_to(package) for path in package.rglob("*") if path.is_file()}

    assert {path for path in kept if not (installed / path).exists()} == set()
    assert any(path.suffix == ".css" for path in kept)


def test_no_engine_is_inside(image):
    packages = {path.name.partition("-")[0] for path in image.glob("lib/python*/site-packages/*")}

    assert packages & {"torch", "vllm", "sglang", "numpy"} == set()
    assert "uvloop" in packages
