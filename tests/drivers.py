"""Differences between cassandra-driver and scylla-driver that tests must take into account."""

from __future__ import annotations

import io
from typing import Any

from cassandra.protocol import ResultMessage

try:
    from cassandra.protocol_features import ProtocolFeatures
except ImportError:
    _features: tuple[Any, ...] = ()
else:
    _features = (ProtocolFeatures(),)

IS_SCYLLA = bool(_features)
"""True if the installed driver is scylla-driver."""


def read_result(body: bytes, described: Any = None, kind: Any = ResultMessage) -> Any:
    """Decode the body of a result with the driver. `described` is metadata that the body lacks."""
    return kind.recv_body(io.BytesIO(body), 4, *_features, {}, described, None)


PATIENT: dict[str, Any] = {"connect_timeout": 120, "control_connection_timeout": 120}
"""Arguments of `Cluster` with which the driver connects even on a busy machine."""
