"""What a client's name may look like inside an engine."""

import re

from fairlead.core.request import ClientId

ANONYMOUS: ClientId = "anonymous"

# Long enough for a UUID with a prefix or an e-mail address; it becomes a metrics label.
MAX_CLIENT_LEN = 128
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._:@/+=-]")


def client_name(value: object) -> ClientId:
    """A value as a client's name: bounded, and safe in logs and metrics. Empty means anonymous."""
    if not isinstance(value, str | int) or isinstance(value, bool):
        return ANONYMOUS
    return _NOT_IN_NAMES.sub("_", str(value)[:MAX_CLIENT_LEN]) or ANONYMOUS
