"""Whether a URL is this gateway's own: as an engine of itself it would ask itself without end."""

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}


def is_own(url: str, *, host: str, port: int) -> bool:
    """Whether `url` leads to who listens on `host` and `port`. Names but localhost are not resolved."""
    parts = urlsplit(url)
    if (parts.port or _PORTS[parts.scheme]) != port:
        return False
    name = (parts.hostname or "").lower()
    asked, listened = _address(name), _address(host)
    if asked is None or listened is None:
        return name == host.lower()
    if listened.is_unspecified:
        return asked.is_loopback or asked.is_unspecified or _is_of_this_machine(asked)
    # To ask 0.0.0.0 is to ask this machine.
    return asked == listened or (asked.is_unspecified and listened.is_loopback)


def _address(name: str) -> IPv4Address | IPv6Address | None:
    """An address; None for another name."""
    if name == "localhost":
        name = "127.0.0.1"
    try:
        address = ip_address(name)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address


def _is_of_this_machine(address: IPv4Address | IPv6Address) -> bool:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as trying:
            trying.bind((str(address), 0))
    except OSError:
        return False
    return True
