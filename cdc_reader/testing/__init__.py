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

_HOMES = {
    "ContainerError": "cdc_reader.testing.container",
    "ContainerNode": "cdc_reader.testing.container",
    "EmbeddedScylla": "cdc_reader.testing.embedded",
    "Fault": "cdc_reader.testing.embedded.faults",
    "FaultKind": "cdc_reader.testing.embedded.faults",
    "Generation": "cdc_reader.testing.embedded.topology.generation",
    "ManualClock": "cdc_reader.testing.clock",
    "Node": "cdc_reader.testing.embedded.topology.ring",
    "Parameters": "cdc_reader.testing.embedded.scylla",
    "Scylla": "cdc_reader.testing.target",
    "ScyllaContainer": "cdc_reader.testing.container",
    "ScyllaNodes": "cdc_reader.testing.nodes",
    "StreamRange": "cdc_reader.testing.embedded.topology.generation",
    "StreamSet": "cdc_reader.testing.embedded.topology.tablets",
}

__all__ = list(_HOMES)

__getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
