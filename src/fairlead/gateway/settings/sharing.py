"""Settings of several processes, and of several gateways: what they share, and how often."""

from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator

from fairlead.gateway.settings.declaring import Group, setting


def redis_url(url: str) -> str:
    """An address that Redis clients know, with options of TLS only. Raises ValueError."""
    if not url.startswith(("redis://", "rediss://", "unix://")):
        raise ValueError("expected redis://HOST:PORT, rediss://HOST:PORT or unix://PATH")
    for option, _ in parse_qsl(urlsplit(url).query, keep_blank_values=True):
        if not option.startswith("ssl_"):  # others would change what the client gives us
            raise ValueError(f"its option {option!r} is not one of TLS: ssl_...")
    return url


RedisUrl = Annotated[str, AfterValidator(redis_url)]


class Sharing(Group):
    """Several processes, several gateways."""

    processes: int = setting(
        1, "of this gateway, on one port, each on a core of its own", "N", ge=1, le=256
    )
    share_url: RedisUrl | None = setting(
        None, "redis://HOST:PORT, where several gateways keep one account", "URL", secret=True
    )
    share_key: str = setting("fairlead", "gateways with the same key share", "KEY")
    share_interval_secs: float = setting(
        0.1, "between two exchanges with the account", "S", ge=0.01, le=10
    )

    def shares(self) -> bool:
        """Whether there is an account at all."""
        return self.share_url is not None or self.processes > 1
