"""Opening a driver session: its settings, and an end to waiting for it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from cassandra import ConsistencyLevel
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    Cluster,
    DefaultConnection,
    ExecutionProfile,
    Session,
)
from cassandra.policies import (
    DCAwareRoundRobinPolicy,
    ExponentialReconnectionPolicy,
    FallthroughRetryPolicy,
)

from cdc_reader.config import ConnectionConfig
from cdc_reader.driver.errors import connect_error
from cdc_reader.driver.protocol import BytesProtocol
from cdc_reader.driver.tls import tls_context
from cdc_reader.errors import ConfigurationError, ConnectionFailedError

_RECONNECT_FIRST, _RECONNECT_LONGEST = 0.5, 10.0
"""Seconds between attempts to reach a node that went away."""


class PageConnection(DefaultConnection):  # type: ignore[misc]
    """Takes a page off the socket in a few calls: the driver's 4 KiB each would make hundreds."""

    in_buffer_size = 1 << 20


def connect(config: ConnectionConfig, fetch_size: int) -> Session:
    """An open session that reads rows as bytes; its `cluster` is to be shut down in the end.

    Returns or raises within the connect timeout, whatever name servers and nodes do. Raises
    ConfigurationError, ConnectionFailedError, AuthenticationFailedError.
    """
    where = ", ".join(f"{host}:{port}" for host, port in config.endpoints())
    settings = _settings(config)
    opening: Future[Session] = Future()
    threading.Thread(
        target=_open, args=(opening, settings, config.local_dc), name="cdc-connect", daemon=True
    ).start()
    try:
        timeout = min(config.connect_timeout.total_seconds(), threading.TIMEOUT_MAX)
        session = opening.result(timeout)
    except Exception as error:
        if not opening.done():
            opening.add_done_callback(_discard)
            raise _too_slow(config, where) from None
        raise connect_error(error, where) from error
    session.client_protocol_handler = BytesProtocol
    session.default_fetch_size = fetch_size
    return session


def _open(opening: Future[Session], settings: dict[str, Any], local_dc: str | None) -> None:
    """In a thread of its own: the driver bounds each step, but not their number."""
    try:
        opening.set_result(_session(settings, local_dc))
    except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
        opening.set_exception(error)


def _session(settings: dict[str, Any], local_dc: str | None) -> Session:
    cluster = Cluster(**settings)
    try:
        return cluster.connect()
    except BaseException:
        cluster.shutdown()
        _check_datacenter(cluster, local_dc)
        raise


def _check_datacenter(cluster: Cluster, local_dc: str | None) -> None:
    """To the driver, a datacenter that does not exist is one whose nodes are all down."""
    known = _datacenters(cluster)
    if local_dc and known and local_dc not in known:
        raise ConfigurationError("local_dc", local_dc, f"the cluster has {', '.join(known)}")


def _datacenters(cluster: Cluster) -> Sequence[str]:
    return sorted({host.datacenter for host in cluster.metadata.all_hosts() if host.datacenter})


def _discard(opening: Future[Session]) -> None:
    if opening.exception() is None:
        opening.result().cluster.shutdown()


def _too_slow(config: ConnectionConfig, where: str) -> ConnectionFailedError:
    seconds = config.connect_timeout.total_seconds()
    return ConnectionFailedError(
        f"cannot connect to {where}: no answer within {seconds:g} s; check host, port and that "
        "the node is up"
    )


def _settings(config: ConnectionConfig) -> dict[str, Any]:
    """What the driver is told. No schema and token metadata: on a large cluster reading it
    takes longer than the queries to come, and its token ring is not that of CDC logs. And no
    delay: a window's queries are small and several, and would wait for each other's answers.
    """
    endpoints = config.endpoints()
    timeout = config.connect_timeout.total_seconds()
    return {
        "connection_class": PageConnection,
        "contact_points": endpoints,
        "port": endpoints[0][1],
        "protocol_version": config.protocol_version,
        "auth_provider": _credentials(config),
        "ssl_context": tls_context(config),
        "connect_timeout": timeout / len(endpoints),
        "control_connection_timeout": timeout,
        "sockopts": [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
        "schema_metadata_enabled": False,
        "token_metadata_enabled": False,
        "monitor_reporting_enabled": False,
        "reconnection_policy": ExponentialReconnectionPolicy(_RECONNECT_FIRST, _RECONNECT_LONGEST),
        "execution_profiles": {EXEC_PROFILE_DEFAULT: _profile(config)},
        "application_name": "scylla-cdc",
    }


def _credentials(config: ConnectionConfig) -> PlainTextAuthProvider | None:
    if config.username is None:
        return None
    return PlainTextAuthProvider(config.username, config.password)


def _profile(config: ConnectionConfig) -> ExecutionProfile:
    """No retries by the driver: `retry` does them, within one deadline."""
    return ExecutionProfile(
        load_balancing_policy=DCAwareRoundRobinPolicy(config.local_dc or ""),
        retry_policy=FallthroughRetryPolicy(),
        consistency_level=ConsistencyLevel.name_to_value[config.consistency],
        request_timeout=config.request_timeout.total_seconds(),
        row_factory=lambda _names, rows: rows,
    )
