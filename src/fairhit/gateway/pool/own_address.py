"""Recognises the gateway's own address among engine URLs: used as an engine it would forward for ever."""

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}


def is_own(url: str, *, host: str, port: int) -> bool:
    """True if `url` leads to the socket bound to `host` and `port`. Resolves no name but localhost."""
    parts = urlsplit(url)
    if (parts.port or _PORTS[parts.scheme]) != port:
        return False
    name = (parts.hostname or "").lower()
    target, bound = _address(name), _address(host)
    if target is None or bound is None:
        return name == host.lower()
    if bound.is_unspecified:
        return target.is_loopback or target.is_unspecified or _is_of_this_machine(target)
    # Connecting to 0.0.0.0 connects to this machine.
    return target == bound or (target.is_unspecified and bound.is_loopback)


def _address(name: str) -> IPv4Address | IPv6Address | None:
    """`name` as an address; None for a host name."""
    if name == "localhost":
        name = "127.0.0.1"
    try:
        address = ip_address(name)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address


def _is_of_this_machine(address: IPv4Address | IPv6Address) -> bool:
    """True if a socket can be bound to `address`."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True
