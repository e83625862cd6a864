"""An in-process ScyllaDB server for development and tests, which stores nothing on disk.

Its packages: `protocol` (bytes), `grammar` and `query` (CQL), `schema` and `storage` (data), `cdc`
(the log), `topology` (nodes and streams), `system` (system tables), `codec` (values).

From `cdc_reader`, the server may import `cql`, `streams`, `decoding` and the packages below them.
Begin with `scylla`, which assembles the parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cdc_reader.testing.embedded.scylla import EmbeddedScylla

__all__ = ["EmbeddedScylla"]


def __getattr__(name: str) -> Any:
    if name != "EmbeddedScylla":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cdc_reader.testing.embedded.scylla import EmbeddedScylla

    return EmbeddedScylla


def __dir__() -> list[str]:
    return __all__
