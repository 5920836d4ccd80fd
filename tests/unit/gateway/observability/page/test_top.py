"""`fairhit top` beside a gateway that is small, huge, away, new again, or closed to it."""

import io
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from rich.console import Console

from fairhit.cli import main
from fairhit.errors import ConfigError
from fairhit.gateway.observability.page.top import NoAnswer, TopScreen, fetcher, short


def sample(number: int, *, clients: int = 3, workers: int = 2) -> dict[str, object]:
    return {
        "n": number,
        "t": 1_700_000_000 + number,
        "s": 1.0,
        "clients": {f"client-{n}": [100 * (n + 1), 20, 60, 10, n, n + 1] for n in range(clients)},
        "other": None,
        "entitled": {"client-2": 0.875, "client-0": 1.5},
        "gap": {"tokens": 250, "bound": 4000, "worker": "http://e0:1", "clients": ["a", "b"]},
        "waiting": 7,
        "workers": {
            f"http://e{n}:1": {
                "state": "up", "circuit": "closed", "in_flight": 3, "limit": 4,
                "in_flight_tokens": 1500,
            }
            for n in range(workers)
        },
    }  # fmt: skip


def about(samples: list[dict[str, object]], *, started_ms: int = 1) -> dict[str, object]:
    return {"started_ms": started_ms, "policy": "d2lpm", "scheduler": "dlpm", "samples": samples}


def lines(screen: TopScreen, *, height: int = 24) -> list[str]:
    console = Console(width=80, height=height, record=True, file=io.StringIO())
    console.print(screen.shown(height=height))
    return console.export_text().splitlines()


def test_a_sample_is_shown_as_it_is():
    screen = TopScreen()
    screen.step(lambda _: about([sample(1), sample(2)]))
    shown = lines(screen)

    assert shown[0].startswith("fairhit  dlpm + d2lpm")
    assert shown[1].split("   ") == [
        "600 tokens/s", "7 waiting", "6 in flight", "75% hits", "gap 250 of 4.0k",
    ]  # fmt: skip
    assert [line.split()[0] for line in shown[4:7]] == ["client-2", "client-1", "client-0"]
    assert shown[4].split()[-6:] == ["50%", "300", "88%", "2", "3", "75%"]
    assert shown[5].split()[-4:] == ["-", "1", "2", "75%"]
    assert shown[9].split() == ["e0:1", "up", "3", "/", "4", "1.5k"]


def test_where_engines_report_them_the_shares_of_charge_and_engine_time_are_shown():
    """Beside one another: client-0 consumes more than it is charged for."""
    screen = TopScreen()
    consumed = {"client-2": [0.701, 0.25], "client-0": [0.299, 0.75]}
    screen.step(lambda _: about([sample(1) | {"consumed": consumed}]))
    shown = lines(screen)

    assert shown[3].split() == [
        "client",
        "share",
        "of",
        "service",
        "charge",
        "engine",
        "time",
        "waiting",
        "in",
        "flight",
        "cached",
    ]
    assert shown[4].split()[-6:] == ["50%", "70%", "25%", "2", "3", "75%"]
    assert shown[5].split()[-5:] == ["-", "-", "1", "2", "75%"]
    assert shown[6].split()[-5:] == ["30%", "75%", "0", "1", "75%"]
    assert max(map(len, shown)) <= 80


def test_a_hundred_clients_and_engines_fit_a_small_terminal():
    screen = TopScreen()
    screen.step(lambda _: about([sample(1, clients=100, workers=100)]))
    shown = lines(screen)

    assert len(shown) <= 24 and max(map(len, shown)) <= 80
    assert sum("more" in line for line in shown) == 2


def test_a_gateway_that_goes_away_and_comes_back_is_no_error():
    """The last numbers stay, with their time; after a restart samples count from 1 again."""
    asked = []

    def away(since: int) -> dict[str, object]:
        raise NoAnswer("connection refused")

    def back(since: int) -> dict[str, object]:
        asked.append(since)
        return about([sample(number) for number in (1, 2) if number > since], started_ms=2)

    screen = TopScreen()
    screen.step(lambda _: about([sample(40), sample(41)]))
    screen.step(away)
    assert "connection refused; as of" in lines(screen)[0]
    screen.step(back)

    assert asked == [41, 0] and screen.last == 2
    assert "refused" not in lines(screen)[0]


class Answering(BaseHTTPRequestHandler):
    """Answer 200 with a sample if the key is right."""

    def do_GET(self) -> None:
        known = self.headers["authorization"] == "Bearer right"
        body = json.dumps(about([sample(1)])).encode() if known else b"{}"
        if self.path.startswith("/other"):
            body = b"<html>"
        self.send_response(200 if known or self.path.startswith("/other") else 401)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_command_prints_once_where_there_is_no_terminal(url, capsys):
    assert main(["top", "--url", url, "--key", "right"]) == 0

    assert "client-2" in capsys.readouterr().out


def test_the_wrong_key_and_the_wrong_address_are_one_line(url, capsys):
    assert main(["top", "--url", url]) == 2
    for address in ("localhost:8000", "http://", "http://a:b"):
        assert main(["top", "--url", address]) == 2
    wrong = capsys.readouterr().err.splitlines()

    assert wrong[0].endswith("needs --key, its admin key")
    assert wrong[1].endswith("--url localhost:8000: expected http://HOST:PORT")
    assert wrong[3].endswith("--url http://a:b: expected http://HOST:PORT")
    assert len(wrong) == 4


def test_where_there_is_no_terminal_no_answer_is_an_error(capsys):
    """Without a terminal there is no later attempt to wait for."""
    assert main(["top", "--url", "http://127.0.0.1:9"]) == 1
    (line,) = capsys.readouterr().err.splitlines()

    assert line.startswith("fairhit: error: http://127.0.0.1:9: ")


def test_a_server_without_http_is_reported():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            caller, _ = server.accept()
            with caller:
                caller.recv(1000)
                caller.sendall(b"SSH-2.0-x\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(NoAnswer, match="does not speak HTTP"):
            fetcher(f"http://127.0.0.1:{server.getsockname()[1]}", None)(0)
        thread.join()


def test_another_server_is_reported(url):
    with pytest.raises(NoAnswer):
        fetcher(f"{url}/other", None)(0)
    with pytest.raises(ConfigError):
        fetcher(url, "wrong")(0)
    with pytest.raises(NoAnswer):
        fetcher("http://127.0.0.1:9", None)(0)


def test_numbers_are_short():
    assert [short(each) for each in (0, 7, 999, 1200, 35_400, 2_100_000)] == [
        "0", "7", "999", "1.2k", "35k", "2.1M",
    ]  # fmt: skip
