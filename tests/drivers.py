"""What tests ask of the driver at hand, cassandra-driver or scylla-driver, below its sessions."""

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
"""Whether it is scylla-driver."""


def read_result(body: bytes, described: Any = None, kind: Any = ResultMessage) -> Any:
    """The driver's reading of a RESULT's body; `described` is metadata that it does not have."""
    return kind.recv_body(io.BytesIO(body), 4, *_features, {}, described, None)
