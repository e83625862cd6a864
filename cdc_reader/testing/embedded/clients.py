"""`system.clients`: the connected clients."""

from __future__ import annotations

from collections.abc import Iterator

from cdc_reader.testing.embedded.server import Server
from cdc_reader.testing.embedded.session import Host
from cdc_reader.testing.embedded.system.virtual import Values


def client_rows(server: Server, host: Host) -> Iterator[Values]:
    """Yield a row for each open session with the node of `host`."""
    for session in server.sessions:
        if session.host is not host:
            continue
        address, port = session.peer
        yield {
            "address": address,
            "port": port,
            "client_type": "cql",
            "connection_stage": session.connection.state.name,
            "driver_name": session.startup.get("DRIVER_NAME"),
            "driver_version": session.startup.get("DRIVER_VERSION"),
            "protocol_version": session.connection.version,
            "shard_id": session.shard,
            "ssl_enabled": server.uses_tls,
            "username": session.username,
        }
