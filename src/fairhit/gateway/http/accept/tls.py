"""TLS on both sides: the gateway's certificate, and the authorities trusted for engines."""

import ssl
from pathlib import Path

from fairhit.errors import ConfigError


class OwnCertificate:
    """The gateway's certificate; `refresh` reads it again, for new connections."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate, self._key = certificate, key
        self.context = self._loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])

    def refresh(self) -> None:
        """Read the files again. Raises ConfigError, and keeps the old certificate then."""
        # A certificate without its key would leave the context in use with half of the pair.
        self._loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        self._loaded(self.context)

    def _loaded(self, context: ssl.SSLContext) -> ssl.SSLContext:
        where = f"tls-cert-path {self._certificate}, tls-key-path {self._key}"
        try:
            context.load_cert_chain(self._certificate, self._key, password=_no_password)
        except ssl.SSLError as error:
            reason = error.reason or "not a certificate and its key"
            raise ConfigError(f"{where}: {reason.lower().replace('_', ' ')}") from None
        except (OSError, _Encrypted) as error:
            raise ConfigError(f"{where}: {getattr(error, 'strerror', None) or error}") from None
        return context


class _Encrypted(Exception):
    """The key is protected by a password."""


def _no_password() -> str:
    raise _Encrypted("the key is encrypted")


def trusting(authorities: tuple[Path, ...]) -> ssl.SSLContext:
    """SSL context for connections to engines: the system's authorities and these. Raises ConfigError."""
    context = ssl.create_default_context()
    for path in authorities:
        try:
            context.load_verify_locations(path)
        except ssl.SSLError:
            raise ConfigError(f"ca-cert-paths: {path}: no certificate in it") from None
        except OSError as error:
            raise ConfigError(f"ca-cert-paths: {path}: cannot be read: {error.strerror}") from None
    return context
