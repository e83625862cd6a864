"""A cluster for the tests of a module, with methods to add, stop and remove nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from attrs import define, field

if TYPE_CHECKING:
    from types import TracebackType

    from cassandra.cluster import Session


@define
class ScyllaNodes:
    """The nodes of a cluster, by address; the cluster is embedded or runs in containers.

    `server` is the `EmbeddedScylla` or `ScyllaContainer`, which the `with` block starts and stops.
    Errors of `server` are raised unchanged.
    """

    server: Any
    _sessions: list[Session] = field(factory=list, init=False, repr=False)

    @property
    def contact_point(self) -> str:
        """``HOST:PORT`` of the first node, which tests should not remove."""
        return str(self.server.contact_point)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of all nodes on the ring, the newest last."""
        return tuple(node.address for node in self.server.nodes)

    def connect(self, **settings: Any) -> Session:
        """Open a driver session with the first node; `settings` are arguments of the Cluster."""
        from cdc_reader.testing.cql_session import open_session

        session = open_session(self.server.host, self.server.port, **settings)
        self._sessions.append(session)
        return session

    def join(self) -> str:
        """Add a node; return its address when it is up."""
        self.server.join()
        return self.addresses[-1]

    def leave(self, address: str) -> None:
        """Decommission a node, which moves its data to the other nodes."""
        self.server.leave(self._node(address))

    def take_down(self, address: str) -> None:
        """Kill a node, which stays on the ring."""
        self.server.take_down(self._node(address))

    def bring_up(self, address: str) -> None:
        """Start a node that was killed; return when it is up."""
        self.server.bring_up(self._node(address))

    def check_and_repair_streams(self) -> None:
        """Create a generation of streams unless the newest one matches the token ring."""
        self.server.check_and_repair_streams()

    def __enter__(self) -> Self:
        self.server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for session in self._sessions:
            session.cluster.shutdown()
        self.server.stop()

    def _node(self, address: str) -> Any:
        return next(node for node in self.server.nodes if node.address == address)
