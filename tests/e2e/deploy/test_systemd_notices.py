"""The gateway under something that listens as systemd does."""

import signal
import socket
import sys

import pytest

from fairhit.local.engine_process import free_ports
from tests.e2e.deploy.processes import plain_environment, running

pytestmark = pytest.mark.e2e


def next_state(listening: socket.socket) -> str:
    """The next word that is not a sign of life."""
    while (state := listening.recv(200)) == b"WATCHDOG=1":
        pass
    return state.decode().split("\n")[0]


def test_it_reports_start_reload_and_stop_and_that_it_lives(tmp_path):
    """
    systemctl start waits for the first word, reload for the second and third; a gateway whose loop
    hangs says nothing and is started anew.
    """
    config = tmp_path / "gateway.yaml"
    config.write_text("worker-urls: [http://127.0.0.1:9]\n")
    (port,) = free_ports(1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(30)
        environment = plain_environment(
            NOTIFY_SOCKET=listening.getsockname(), WATCHDOG_USEC="100000"
        )
        command = [sys.executable, "-m", "fairhit", "gateway", "--config", str(config)]
        with running([*command, "--port", str(port)], environment) as process:
            assert next_state(listening) == "READY=1"
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            while listening.recv(200) != b"WATCHDOG=1":
                pass
            process.send_signal(signal.SIGHUP)
            assert [next_state(listening), next_state(listening)] == ["RELOADING=1", "READY=1"]
            process.send_signal(signal.SIGTERM)
            assert next_state(listening) == "STOPPING=1"
            assert process.wait(timeout=30) == 0
