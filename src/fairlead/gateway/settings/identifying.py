"""Settings of who is asking: keys, trusted headers, the body's `user`."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from fairlead.errors import ConfigError
from fairlead.gateway.keys import hashed_line, parse_tenant_key
from fairlead.gateway.settings.declaring import Group, setting
from fairlead.gateway.settings.reading import read_text
from fairlead.gateway.settings.values import HeaderName, IdentityField, Text, UsageField, Words

_FLAG = "--tenant-api-key"


def hash_keys(lines: tuple[str, ...]) -> tuple[str, ...]:
    """The lines with each key hashed: no setting keeps one as it was given. Raises ValueError."""
    try:
        return tuple(hashed_line(line, where=_FLAG) for line in lines)
    except ConfigError as error:
        raise ValueError(str(error).removeprefix(f"{_FLAG}: ")) from None


TenantKeys = Annotated[Words, AfterValidator(hash_keys)]


class Identifying(Group):
    """Who is the client."""

    tenant_api_key: TenantKeys = setting(
        (), "a client and its key, plain or sha256:HEX; may be repeated", "TENANT:KEY",
        shape="again", live=True, secret=True,
    )  # fmt: skip
    keys_file: Path | None = setting(
        None, "lines of TENANT:KEY or TENANT:sha256:HEX", "FILE", live=True
    )
    trust_tenant_header: bool = setting(
        False, "believe the tenant headers: only behind a proxy that sets them", live=True
    )
    tenant_header_name: HeaderName | None = setting(
        None, "the one tenant header, instead of those that are usual", "NAME"
    )
    identify_by_user: bool = setting(
        False, "without a key or header, believe the body's `user`", live=True
    )
    identity_field: IdentityField = setting(
        "vllm", "whose field tells the engine the client; both: a fleet of both; none: no field"
    )
    isolate_prefixes: bool = setting(
        False, "each client its own prefix cache: cache_salt in every body"
    )
    isolation_secret: Text | None = setting(
        None, "what salts are made from; the same for all gateways, or else each has its own", "SECRET",
        secret=True,
    )  # fmt: skip
    usage_field: UsageField = setting(
        "stream_options", "none: streams are not asked for usage, their events are counted"
    )

    def keys(self) -> dict[bytes, str]:
        """Digest of an API key -> its client, from the flags and the keys file. Raises ConfigError."""
        lines = [(_FLAG, text) for text in self.tenant_api_key]
        if self.keys_file is not None:
            lines += [
                (f"{self.keys_file}, line {number}", text)
                for number, text in enumerate(read_text(self.keys_file).splitlines(), start=1)
                if text.strip() and not text.lstrip().startswith("#")
            ]
        keys: dict[bytes, str] = {}
        for where, text in lines:
            client, digest = parse_tenant_key(text, where=where)
            if keys.setdefault(digest, client) != client:
                raise ConfigError(f"{where}: this key already belongs to another tenant")
        if self.keys_file is not None and not keys:
            raise ConfigError(
                f"{self.keys_file}: expected at least one line TENANT:KEY or TENANT:sha256:HEX"
            )
        return keys
