"""Refuses statements whose consistency level needs more replicas than the cluster has nodes."""

from __future__ import annotations

from collections.abc import Mapping

from cdc_reader.testing.embedded.errors import CONSISTENCIES, Unavailable

_FIXED = {"TWO": 2, "THREE": 3}
_MAJORITY = {"QUORUM", "LOCAL_QUORUM", "EACH_QUORUM", "SERIAL", "LOCAL_SERIAL"}


def check_available(replication: Mapping[str, str], level: int, nodes: int) -> None:
    """Raise Unavailable if the `level` needs more replicas than there are `nodes`.

    `replication` is the keyspace's option. Only strategies with a replication factor are checked,
    because all others replicate to every node, or to none.
    """
    factors = [int(factor) for factor in replication.values() if str(factor).isdecimal()]
    replicas, name = sum(factors), CONSISTENCIES[level]
    required = {**_FIXED, "ALL": replicas, **dict.fromkeys(_MAJORITY, replicas // 2 + 1)}.get(name)
    alive = min(replicas, nodes)
    if replicas and required is not None and required > alive:
        raise Unavailable(
            f"Cannot achieve consistency level for cl {name}. Requires {required}, alive {alive}",
            level,
            required,
            alive,
        )
