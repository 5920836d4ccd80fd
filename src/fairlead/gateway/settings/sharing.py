"""Settings of several processes, and of several gateways: what they share, and how often."""

from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator

from fairlead.gateway.settings.declaring import Group, setting
from fairlead.gateway.settings.values import Text


def redis_url(url: str) -> str:
    """An address that Redis clients know, with options of TLS only. Raises ValueError, without the URL."""
    if not _is_address(url):
        raise ValueError("expected redis://HOST:PORT, rediss://HOST:PORT or unix://PATH")
    parts = urlsplit(url)
    for option, _ in parse_qsl(parts.query, keep_blank_values=True):
        if not option.startswith("ssl_"):  # others would change what the client gives us
            raise ValueError(f"its option {option!r} is not one of TLS: ssl_...")
        if parts.scheme != "rediss":
            raise ValueError(f"its option {option!r} is for rediss:// only")
    return url


def _is_address(url: str) -> bool:
    """After the host there may be the number of a database, and nothing else."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:  # its words have parts of the password where that has a slash
        return False
    if parts.scheme == "unix":
        return len(parts.path) > 1
    database = parts.path.strip("/")
    is_number = database.isascii() and database.isdigit()
    return parts.scheme in {"redis", "rediss"} and (is_number or not database)


RedisUrl = Annotated[str, AfterValidator(redis_url)]


class Sharing(Group):
    """Several processes, several gateways."""

    processes: int = setting(
        1, "of this gateway, on one port, each on a core of its own", "N", ge=1, le=256
    )
    share_url: RedisUrl | None = setting(
        None, "redis://HOST:PORT, where several gateways keep one account", "URL", secret=True
    )
    share_key: Text = setting("fairlead", "gateways with the same key share", "KEY")
    share_interval_secs: float = setting(
        0.1, "between two exchanges with the account", "S", ge=0.01, le=10
    )

    def shares(self) -> bool:
        """Whether there is an account at all."""
        return self.share_url is not None or self.processes > 1
