"""Creates a server's TLS context from PEM files."""

from __future__ import annotations

import ssl
from pathlib import Path

from cdc_reader.errors import ConfigurationError


def server_context(
    certificate: str | Path | None, key: str | Path | None, client_authority: str | Path | None
) -> ssl.SSLContext | None:
    """Return the TLS context; None if no file is given.

    Raises ConfigurationError if a file cannot be used.
    """
    if certificate is None and key is None and client_authority is None:
        return None
    if certificate is None or key is None:
        name = "certificate" if certificate is None else "key"
        raise ConfigurationError(name, None, "TLS takes both a certificate and its private key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _identify(context, certificate, key)
    if client_authority is not None:
        _ask_clients(context, client_authority)
    return context


def _identify(context: ssl.SSLContext, certificate: str | Path, key: str | Path) -> None:
    try:
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        remedy = (
            f"expected PEM, and in {str(key)!r} the private key of it ({error.reason or 'no PEM'})"
        )
        raise ConfigurationError("certificate", str(certificate), remedy) from None
    except OSError as error:
        remedy = f"{error.strerror}; expected readable files, here and in {str(key)!r}"
        raise ConfigurationError("certificate", str(certificate), remedy) from None


def _ask_clients(context: ssl.SSLContext, authority: str | Path) -> None:
    try:
        context.load_verify_locations(authority)
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        remedy = f"expected a readable PEM file ({reason})"
        raise ConfigurationError("client_authority", str(authority), remedy) from None
    context.verify_mode = ssl.CERT_REQUIRED
