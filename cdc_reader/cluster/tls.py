"""TLS: trusted CAs, the name that each node's certificate must have, and errors for a mismatch."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from typing import Any

from attrs import frozen

from cdc_reader._log import get_logger
from cdc_reader.config import ConnectionConfig
from cdc_reader.errors import ConfigurationError

log = get_logger(__name__)

# OpenSSL's codes for a trusted certificate with the wrong host name or address.
_HOST_MISMATCH, _ADDRESS_MISMATCH = 62, 64
_TOO_EARLY, _TOO_LATE = 9, 10
"""OpenSSL's codes for a certificate that is not yet valid, or no longer valid."""
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"})
"""OpenSSL's names for a response in another protocol."""


_PATIENCE = 0.5
"""Seconds allowed for each step in checking whether a server speaks TLS."""


@frozen
class Refusal:
    """Why a node was rejected, and what to do."""

    reason: str
    remedy: str


class NodeContext(ssl.SSLContext):
    """The TLS settings of one session, and the nodes whose certificates were rejected.

    The driver resolves contact points and connects to addresses, so by default it expects addresses
    in certificates. Here, a node reached through a contact point must have a certificate for the
    contact point's name. Any other node, found in the system tables, must have a certificate for
    its address.
    """

    host_names: tuple[str, ...] = ()
    """The contact points that are names, not addresses."""
    refusals: dict[str, Refusal]
    """The nodes that were rejected, by the expected name."""

    def wrap_socket(  # type: ignore[override]  # the driver passes on what it was given
        self, sock: socket.socket, server_hostname: str | None = None, **options: Any
    ) -> ssl.SSLSocket:
        """Wrap the socket; the peer's certificate must match its contact point's name, if any."""
        if server_hostname is not None:
            server_hostname = self._name_of(server_hostname)
        return super().wrap_socket(sock, server_hostname=server_hostname, **options)

    def refuse(self, node: str, error: ssl.SSLError) -> None:
        """Record a failed handshake, and warn once: the driver continues with other nodes.

        The warning does not suggest a remedy, because commands and Spark have other names for the
        settings, and only errors are translated into those names.
        """
        refusal = _refusal(node, error)
        if self.refusals.get(node) != refusal:
            self.refusals[node] = refusal
            log.warning("node_refused", node=node, reason=refusal.reason)

    def _name_of(self, address: str) -> str:
        """Return the contact point of an address; names are resolved each time."""
        return next((name for name in self.host_names if address in _addresses(name)), address)


class _NodeSocket(ssl.SSLSocket):
    """A TLS socket that reports failed handshakes to its context."""

    context: NodeContext

    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            self.context.refuse(self.server_hostname or self.getpeername()[0], error)
            raise


def tls_context(config: ConnectionConfig) -> NodeContext | None:
    """Return the TLS settings, or None if TLS is off; raise ConfigurationError for a bad file."""
    if not config.uses_tls:
        return None
    context = NodeContext(ssl.PROTOCOL_TLS_CLIENT)
    context.sslsocket_class = _NodeSocket
    context.refusals = {}
    context.verify_flags |= ssl.create_default_context().verify_flags
    context.check_hostname = config.tls_verify_hostname
    context.host_names = tuple(host for host, _ in config.endpoints() if not _is_address(host))
    _trust(context, config.tls_ca)
    if config.tls_cert:
        _identify(context, config.tls_cert, config.tls_key)
    return context


def speaks_tls(endpoint: tuple[str, int]) -> bool:
    """Return True if the server responds to a TLS handshake; wait at most a second."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection(endpoint, _PATIENCE) as plain, context.wrap_socket(plain):
            return True
    except ssl.SSLError as error:
        # An alert means that the server speaks TLS: it requires another version, or a certificate.
        return "ALERT" in (error.reason or "")
    except OSError:
        return False


def _trust(context: ssl.SSLContext, authority: str | None) -> None:
    if authority is None:
        context.load_default_certs()
        return
    try:
        context.load_verify_locations(authority)
    except (OSError, ssl.SSLError) as error:
        raise _unfit("tls_ca", authority, error) from None


def _identify(context: ssl.SSLContext, certificate: str, key: str | None) -> None:
    try:
        # The empty passphrase keeps OpenSSL from prompting for one.
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ssl.SSLError, ValueError) as error:
        raise _unfit("tls_cert", certificate, error) from None


def _unfit(option: str, path: str, error: Exception) -> ConfigurationError:
    reason = getattr(error, "strerror", None) or str(error)
    return ConfigurationError(option, path, f"give a readable PEM file ({reason})")


def _refusal(node: str, error: ssl.SSLError) -> Refusal:
    if not isinstance(error, ssl.SSLCertVerificationError):
        if error.reason in _NO_TLS:
            remedy = "check the port, or turn tls off"
            return Refusal("it does not speak TLS on this port", remedy)
        remedy = "check the TLS settings, also those of the server"
        return Refusal(f"TLS failed ({error.reason or error})", remedy)
    if error.verify_code in (_HOST_MISMATCH, _ADDRESS_MISMATCH):
        remedy = "give a host name that the certificate has, or turn tls_verify_hostname off"
        return Refusal(f"its certificate is not for {node!r}", remedy)
    remedy = "give the authority that signed it as tls_ca"
    if error.verify_code in (_TOO_EARLY, _TOO_LATE):
        remedy = "renew it, or set this machine's clock"
    return Refusal(f"its certificate is not trusted ({error.verify_message})", remedy)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _addresses(name: str) -> set[str]:
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(name, None)}
    except OSError:
        return set()
