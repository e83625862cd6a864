"""A test kit: an embedded ScyllaDB, ScyllaDB in containers, a pytest plugin and a manual clock.

Names are imported lazily, because the plugin loads this package in every pytest run, and each
server needs a different extra.

For maintainers: this package may import all others, but only tests, the demo and `scylla-cdc serve`
may import this package. Begin with `target`, which selects the server for a test run, or with
`embedded`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_reader._lazy import homes, lazily

if TYPE_CHECKING:
    from cdc_reader.testing.clock import ManualClock as ManualClock
    from cdc_reader.testing.container import ContainerError as ContainerError
    from cdc_reader.testing.container import ContainerNode as ContainerNode
    from cdc_reader.testing.container import ScyllaContainer as ScyllaContainer
    from cdc_reader.testing.embedded import EmbeddedScylla as EmbeddedScylla
    from cdc_reader.testing.embedded.faults import Fault as Fault
    from cdc_reader.testing.embedded.faults import FaultKind as FaultKind
    from cdc_reader.testing.embedded.scylla import Parameters as Parameters
    from cdc_reader.testing.embedded.topology.generation import Generation as Generation
    from cdc_reader.testing.embedded.topology.generation import StreamRange as StreamRange
    from cdc_reader.testing.embedded.topology.ring import Node as Node
    from cdc_reader.testing.embedded.topology.tablets import StreamSet as StreamSet
    from cdc_reader.testing.nodes import ScyllaNodes as ScyllaNodes
    from cdc_reader.testing.target import Scylla as Scylla

_HOMES = homes(
    {
        "cdc_reader.testing.clock": "ManualClock",
        "cdc_reader.testing.container": "ContainerError ContainerNode ScyllaContainer",
        "cdc_reader.testing.embedded": "EmbeddedScylla",
        "cdc_reader.testing.embedded.faults": "Fault FaultKind",
        "cdc_reader.testing.embedded.scylla": "Parameters",
        "cdc_reader.testing.embedded.topology.generation": "Generation StreamRange",
        "cdc_reader.testing.embedded.topology.ring": "Node",
        "cdc_reader.testing.embedded.topology.tablets": "StreamSet",
        "cdc_reader.testing.nodes": "ScyllaNodes",
        "cdc_reader.testing.target": "Scylla",
    }
)

__all__ = list(_HOMES)

__getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
