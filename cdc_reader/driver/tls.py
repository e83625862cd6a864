"""The TLS context of a connection, from PEM files."""

from __future__ import annotations

import ssl

from cdc_reader.config import ConnectionConfig
from cdc_reader.errors import ConfigurationError


def tls_context(config: ConnectionConfig) -> ssl.SSLContext | None:
    """None if TLS is off. Raises ConfigurationError, naming the file that is unfit.

    Only certificates of the given authority count, not those of the system's: so a node's
    need not name the address it was found by.
    """
    if config.tls_ca is None:
        return None
    context = _trusting(config.tls_ca)
    if config.tls_cert:
        _identify(context, config.tls_cert, config.tls_key)
    return context


def _trusting(authority: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=authority)
    except (OSError, ssl.SSLError) as error:
        raise _unfit("tls_ca", authority, error) from None
    context.check_hostname = False
    return context


def _identify(context: ssl.SSLContext, certificate: str, key: str | None) -> None:
    try:
        # An empty passphrase: without one, OpenSSL would ask the terminal.
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ssl.SSLError, ValueError) as error:
        raise _unfit("tls_cert", certificate, error) from None


def _unfit(option: str, path: str, error: Exception) -> ConfigurationError:
    reason = getattr(error, "strerror", None) or str(error)
    return ConfigurationError(option, path, f"give a readable PEM file ({reason})")
