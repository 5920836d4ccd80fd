"""URLs that lead to the gateway itself."""

import pytest

from fairhit.gateway.pool.own_address import is_own


@pytest.mark.parametrize(
    ("url", "host", "own"),
    [
        ("http://127.0.0.1:8000", "127.0.0.1", True),
        ("http://localhost:8000/v1", "127.0.0.1", True),
        ("http://0.0.0.0:8000", "127.0.0.1", True),
        ("http://[::ffff:127.0.0.1]:8000", "127.0.0.1", True),
        ("http://127.0.0.1:8001", "127.0.0.1", False),
        ("http://127.0.0.1", "127.0.0.1", False),
        ("http://10.0.0.5:8000", "127.0.0.1", False),
        ("http://127.0.0.9:8000", "0.0.0.0", True),
        ("http://[::1]:8000", "::", True),
        ("http://203.0.113.7:8000", "0.0.0.0", False),
        ("http://127.0.0.1:8000", "10.0.0.5", False),  # an engine beside it
        ("http://10.0.0.5:8000", "10.0.0.5", True),
        ("http://Gate.example:8000", "gate.example", True),
        ("http://vllm:8000", "0.0.0.0", False),
    ],
)
def test_a_url_is_the_gateways_own_by_its_port_and_its_address(
    url: str, host: str, own: bool
) -> None:
    assert is_own(url, host=host, port=8000) == own


def test_the_port_may_be_the_usual_one() -> None:
    assert is_own("http://127.0.0.1", host="0.0.0.0", port=80)
    assert is_own("https://127.0.0.1", host="0.0.0.0", port=443)
