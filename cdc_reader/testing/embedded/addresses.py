"""Allocates the addresses that nodes listen on."""

from __future__ import annotations

import ipaddress
import socket

from attrs import define, field

from cdc_reader.errors import ConfigurationError


@define
class Addresses:
    """Allocates consecutive addresses, starting with the address of `host`.

    A single node may have any address. Several nodes need consecutive IPv4 addresses of this
    machine, such as loopback addresses. `next` raises ConfigurationError if no address is left.
    """

    host: str
    _given: int = field(default=0, init=False)

    def next(self) -> str:
        """Return the next node's address."""
        address = self._following(self._given) if self._given else _resolved(self.host)
        self._given += 1
        return address

    def _following(self, offset: int) -> str:
        first = ipaddress.ip_address(_resolved(self.host))
        following = first + offset
        if first.version != 4 or not (first.is_loopback or _is_here(str(following))):
            remedy = (
                "several nodes need a loopback IPv4 address such as '127.0.0.1' to begin with, or "
                "one that is followed by others of this machine"
            )
            raise ConfigurationError("host", self.host, remedy)
        return str(following)


def _is_here(address: str) -> bool:
    """Return True if `address` is an address of this machine."""
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def reachable(listen_address: str) -> str:
    """Return the address at which clients on this machine reach a listener."""
    address = ipaddress.ip_address(listen_address)
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "::1"
    return listen_address


def _resolved(host: str) -> str:
    """Resolve a host name, to an IPv4 address if possible; return an IP address unchanged."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        remedy = f"expected an address of this machine ({error.strerror})"
        raise ConfigurationError("host", host, remedy) from error
    return str(min(found, key=lambda entry: entry[0] is not socket.AF_INET)[4][0])
