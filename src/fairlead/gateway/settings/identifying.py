"""Settings of who is asking: keys, trusted headers, the body's `user`."""

from pathlib import Path

from fairlead.errors import ConfigError
from fairlead.gateway.identity import parse_tenant_key
from fairlead.gateway.settings.declaring import Group, setting
from fairlead.gateway.settings.reading import read_text
from fairlead.gateway.settings.values import IdentityField, UsageField, Words


class Identifying(Group):
    """Who is the client."""

    tenant_api_key: Words = setting(
        (), "a client and its key; may be repeated", "TENANT:KEY",
        shape="again", live=True, secret=True,
    )  # fmt: skip
    keys_file: Path | None = setting(None, "lines of TENANT:KEY", "FILE", live=True)
    trust_tenant_header: bool = setting(
        False, "believe the tenant headers: only behind a proxy that sets them", live=True
    )
    identify_by_user: bool = setting(
        False, "without a key or header, believe the body's `user`", live=True
    )
    identity_field: IdentityField = setting(
        "vllm", "none: bodies reach the engine without the client"
    )
    usage_field: UsageField = setting(
        "stream_options", "none: streams are not asked for usage, their events are counted"
    )

    def named_files(self) -> list[Path]:
        """Files besides those of settings whose changes matter."""
        return [self.keys_file] if self.keys_file is not None else []

    def keys(self) -> dict[str, str]:
        """API key -> client, from the flags and the keys file. Raises ConfigError."""
        lines = [("--tenant-api-key", text) for text in self.tenant_api_key]
        if self.keys_file is not None:
            lines += [
                (f"{self.keys_file}, line {number}", text)
                for number, text in enumerate(read_text(self.keys_file).splitlines(), start=1)
                if text.strip() and not text.lstrip().startswith("#")
            ]
        keys: dict[str, str] = {}
        for where, text in lines:
            client, key = parse_tenant_key(text, where=where)
            if keys.setdefault(key, client) != client:
                raise ConfigError(f"{where}: this key already belongs to another tenant")
        if self.keys_file is not None and not keys:
            raise ConfigError(f"{self.keys_file}: expected at least one line TENANT:KEY")
        return keys
