"""A test kit: an embedded ScyllaDB, ScyllaDB in containers, a pytest plugin and a manual clock.

Names are imported lazily, because the plugin loads this package in every pytest run, and each
server needs a different extra.

For maintainers: this package may import all others, but only tests, the demo and `scylla-cdc serve`
may import this package. Begin with `target`, which selects the server for a test run, or with
`embedded`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_reader._lazy import lazily

if TYPE_CHECKING:
    from cdc_reader.testing.clock import ManualClock
    from cdc_reader.testing.container import ContainerError, ContainerNode, ScyllaContainer
    from cdc_reader.testing.embedded import EmbeddedScylla
    from cdc_reader.testing.embedded.faults import Fault, FaultKind
    from cdc_reader.testing.embedded.scylla import Parameters
    from cdc_reader.testing.embedded.topology.generation import Generation, StreamRange
    from cdc_reader.testing.embedded.topology.ring import Node
    from cdc_reader.testing.embedded.topology.tablets import StreamSet
    from cdc_reader.testing.nodes import ScyllaNodes
    from cdc_reader.testing.target import Scylla

__all__ = [
    "ContainerError",
    "ContainerNode",
    "EmbeddedScylla",
    "Fault",
    "FaultKind",
    "Generation",
    "ManualClock",
    "Node",
    "Parameters",
    "Scylla",
    "ScyllaContainer",
    "ScyllaNodes",
    "StreamRange",
    "StreamSet",
]

_HOMES = {
    "ContainerError": "cdc_reader.testing.container",
    "ContainerNode": "cdc_reader.testing.container",
    "EmbeddedScylla": "cdc_reader.testing.embedded",
    "Fault": "cdc_reader.testing.embedded.faults",
    "FaultKind": "cdc_reader.testing.embedded.faults",
    "Generation": "cdc_reader.testing.embedded.topology.generation",
    "ManualClock": "cdc_reader.testing.clock",
    "Parameters": "cdc_reader.testing.embedded.scylla",
    "Node": "cdc_reader.testing.embedded.topology.ring",
    "Scylla": "cdc_reader.testing.target",
    "ScyllaContainer": "cdc_reader.testing.container",
    "ScyllaNodes": "cdc_reader.testing.nodes",
    "StreamRange": "cdc_reader.testing.embedded.topology.generation",
    "StreamSet": "cdc_reader.testing.embedded.topology.tablets",
}

__getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
