"""The systemd unit: by systemd's own checks, and by the gateway's settings."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from scripts import install_programs

from fairhit.cli import make_parser
from fairhit.gateway.settings import GatewaySettings

UNIT = Path(__file__).resolve().parents[2] / "deploy" / "systemd" / "fairhit-gateway.service"
# Exposure that `systemd-analyze security` counts, of 10: what is left is mostly the network.
EXPOSURE = 1.5

ANALYZE = install_programs.find("systemd-analyze")
analyze = pytest.mark.skipif(
    ANALYZE is None,
    reason="no systemd-analyze: scripts/install_programs.py",
)


def values(name: str) -> list[str]:
    """Values of a setting of the unit, in order."""
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)


def analyzed(tmp_path: Path, text: str, *command: str) -> "subprocess.CompletedProcess[str]":
    """systemd-analyze on a copy: it looks whether the programs are there."""
    copy = tmp_path / UNIT.name
    copy.write_text(re.sub(r"=/opt/fairhit/bin/fairhit", "=/bin/true", text))
    assert ANALYZE is not None
    return subprocess.run(
        [ANALYZE, *command, str(copy)],
        env=install_programs.environment(ANALYZE),
        capture_output=True,
        text=True,
        check=False,
    )


@analyze
def test_systemd_accepts_it(tmp_path):
    done = analyzed(tmp_path, UNIT.read_text(), "verify", "--man=no", "--recursive-errors=no")

    assert (done.returncode, done.stderr) == (0, "")


@analyze
def test_systemd_would_say_what_it_does_not_know(tmp_path):
    wrong = UNIT.read_text().replace("NoNewPrivileges=", "NoNewPriviledges=")

    done = analyzed(tmp_path, wrong, "verify", "--man=no", "--recursive-errors=no")

    assert "NoNewPriviledges" in done.stderr


@analyze
def test_it_is_as_closed_as_systemd_can_make_it(tmp_path):
    command = ("security", "--offline=true", f"--threshold={round(EXPOSURE * 10)}", "--no-pager")
    done = analyzed(tmp_path, UNIT.read_text(), *command)

    assert done.returncode == 0, done.stdout


def test_the_gateway_takes_the_command():
    (start,) = values("ExecStart")
    program, *arguments = shlex.split(start)

    assert Path(program).name == "fairhit"
    assert make_parser(arguments[0]).parse_args(arguments).config == "/etc/fairhit/gateway.yaml"


def test_streams_may_end_before_it_is_killed():
    settings = GatewaySettings()
    (limit_s,) = values("TimeoutStopSec")

    assert settings.drain_delay_secs + settings.shutdown_timeout_secs < int(limit_s)


def test_there_are_descriptors_for_every_connection():
    """A request holds two descriptors; engines and files need some."""
    (limit,) = values("LimitNOFILE")

    assert 2 * GatewaySettings().max_connections + 1024 <= int(limit)


def test_a_reload_is_a_signal_that_the_gateway_knows():
    assert values("ExecReload") == ["/bin/kill -HUP $MAINPID"]
    assert values("Type") == ["notify"]
