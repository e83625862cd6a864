"""A driver session for tests, which connects to one host only."""

from __future__ import annotations

from typing import Any

from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.policies import WhiteListRoundRobinPolicy

PATIENCE = 30.0  # seconds; long, because a test server may share a small machine with the tests


def open_session(
    host: str, port: int, credentials: tuple[str, str] | None = None, **settings: Any
) -> Session:
    """Log in to the server at `host`:`port`; the caller must shut down the session's `cluster`.

    All requests go to that host, because a server in a container or behind a tunnel reports
    addresses that clients cannot reach. `settings` are arguments of the driver's Cluster.
    """
    profile = ExecutionProfile(
        load_balancing_policy=WhiteListRoundRobinPolicy([host]), request_timeout=PATIENCE
    )
    defaults = {
        "protocol_version": 4,
        "connect_timeout": PATIENCE,
        "control_connection_timeout": PATIENCE,
        "auth_provider": PlainTextAuthProvider(*credentials) if credentials else None,
        "execution_profiles": {EXEC_PROFILE_DEFAULT: profile},
    }
    cluster = Cluster([host], port=port, **{**defaults, **settings})
    try:
        return cluster.connect()
    except BaseException:
        cluster.shutdown()
        raise
