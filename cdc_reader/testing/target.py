"""The server of a test run: embedded, in a container, or already running.

Every pytest run imports this module, so a target's dependencies are imported only when it opens.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import cached_property
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from attrs import define, field, frozen

from cdc_reader.config import ConnectionConfig
from cdc_reader.errors import ConfigurationError

if TYPE_CHECKING:
    from cassandra.cluster import Session

    from cdc_reader.testing.container import ScyllaContainer
    from cdc_reader.testing.embedded import EmbeddedScylla
    from cdc_reader.testing.nodes import ScyllaNodes

CAPABILITIES: Mapping[str, str] = MappingProxyType(
    {
        "clock": "a clock that the test moves",
        "faults": "a server that fails when the test says so",
        "generations": "a server of its own, whose tables of CDC generations the test writes",
        "nodes": "three nodes of its own, which join, leave, fail and split tablets",
        "topology": "nodes, vnodes, shards, login and TLS as the test wants them",
    }
)
"""Capabilities that a test may need and a running server lacks: the arguments of ``needs``."""


class TargetError(Exception):
    """The requested server is not available; the message is one line."""


@define(slots=False)
class Scylla:
    """A ScyllaDB server, which runs for the duration of the `with` block.

    `server` is the embedded server, with its clock and faults, or the container; None for a server
    that was already running.
    """

    target: str
    host: str
    port: int
    capabilities: frozenset[str] = frozenset()
    credentials: tuple[str, str] | None = field(default=None, repr=False)
    server: EmbeddedScylla | ScyllaContainer | None = None
    _resources: ExitStack = field(factory=ExitStack, repr=False)

    @property
    def contact_point(self) -> str:
        """``HOST:PORT`` of the server."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @cached_property
    def session(self) -> Session:
        """A driver session that all tests of a run share."""
        return self.connect()

    @cached_property
    def version(self) -> str:
        """The version of ScyllaDB, such as ``2026.1.4``."""
        (row,) = self.session.execute("SELECT version FROM system.versions")
        return str(row.version).partition("-")[0]

    def connect(self, **settings: Any) -> Session:
        """Open a separate driver session; `settings` are arguments of the driver's Cluster."""
        from cdc_reader.testing.cql_session import open_session

        session = open_session(self.host, self.port, self.credentials, **settings)
        self._resources.callback(session.cluster.shutdown)
        return session

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._resources.close()


class Target(Protocol):
    """A kind of server; `label` names it in reports, and `capabilities` lists what it supports."""

    @property
    def label(self) -> str: ...

    @property
    def capabilities(self) -> frozenset[str]: ...

    def open(self) -> Scylla:
        """Open the server and wait until it accepts requests; raise TargetError if it does not."""
        ...

    def nodes(self) -> ScyllaNodes:
        """Return a three-node cluster, which a `with` block starts.

        Raises TargetError if this kind of server cannot provide one.
        """
        ...


def _started(
    target: Target, server: EmbeddedScylla | ScyllaContainer, resources: ExitStack
) -> Scylla:
    """Return the running server; closing `resources` stops it."""
    return Scylla(
        target.label,
        server.host,
        server.port,
        target.capabilities,
        server=server,
        resources=resources,
    )


@frozen
class EmbeddedTarget:
    """The embedded server, in this process."""

    label: str = "embedded"
    capabilities: frozenset[str] = frozenset(CAPABILITIES)

    def open(self) -> Scylla:
        try:
            from cdc_reader.testing.embedded import EmbeddedScylla
        except ImportError as error:
            raise _missing_extra(self.label, "embedded", error) from error
        resources = ExitStack()
        server = resources.enter_context(EmbeddedScylla())
        return _started(self, server, resources)

    def nodes(self) -> ScyllaNodes:
        from cdc_reader.testing.embedded import EmbeddedScylla
        from cdc_reader.testing.nodes import ScyllaNodes

        return ScyllaNodes(EmbeddedScylla(nodes=3, ring_delay_ms=0))


@frozen
class DockerTarget:
    """ScyllaDB in a container, by default from the latest image."""

    image: str | None = None
    capabilities: frozenset[str] = frozenset(["generations", "nodes"])

    @property
    def label(self) -> str:
        return f"docker:{self.image}" if self.image else "docker"

    def open(self) -> Scylla:
        try:
            from cdc_reader.testing.container import IMAGE, ContainerError, ScyllaContainer
        except ImportError as error:
            raise _missing_extra(self.label, "docker", error) from error
        resources = ExitStack()
        try:
            server = resources.enter_context(ScyllaContainer(self.image or IMAGE))
        except ContainerError as error:
            raise TargetError(str(error)) from error
        return _started(self, server, resources)

    def nodes(self) -> ScyllaNodes:
        from cdc_reader.testing.container import IMAGE, ScyllaContainer
        from cdc_reader.testing.nodes import ScyllaNodes

        # A short ring delay, so that generations begin 11 s after they are created.
        options = ("--ring-delay-ms", "3000")
        return ScyllaNodes(ScyllaContainer(self.image or IMAGE, nodes=3, options=options))


@frozen
class RunningTarget:
    """A server that is already running."""

    host: str
    port: int
    credentials: tuple[str, str] | None = field(default=None, repr=False)
    capabilities: frozenset[str] = frozenset()

    @property
    def label(self) -> str:
        return f"{self.host}:{self.port}"

    def open(self) -> Scylla:
        from cassandra.cluster import NoHostAvailable

        scylla = Scylla(
            self.label, self.host, self.port, self.capabilities, credentials=self.credentials
        )
        try:
            scylla.connect()
        except (NoHostAvailable, OSError) as error:
            raise TargetError(
                f"{self.label}: no login over CQL ({' '.join(str(error).split())}); "
                "check the address, that the server runs, and USER:PASSWORD"
            ) from error
        return scylla

    def nodes(self) -> ScyllaNodes:
        raise TargetError(f"{self.label}: a running server's nodes are not a test's to change")


def parse_target(text: str) -> Target:
    """Parse the value of ``--scylla``; raise TargetError if it is invalid."""
    kind, _, image = text.partition(":")
    if text == "embedded":
        return EmbeddedTarget()
    if kind == "docker" and image:
        return DockerTarget(image)
    if text == "docker":
        return DockerTarget()
    return _running_target(text)


def _running_target(text: str) -> RunningTarget:
    login, _, address = text.rpartition("@")
    user, _, password = login.partition(":")
    expected = "expected embedded, docker, docker:IMAGE or [USER:PASSWORD@]HOST:PORT"
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit()) or bool(login) != bool(user and password):
        raise TargetError(f"--scylla={address}: {expected}")
    try:
        [endpoint] = ConnectionConfig(address).endpoints()
    except (ConfigurationError, ValueError) as error:
        raise TargetError(f"--scylla={address}: {expected}") from error
    return RunningTarget(*endpoint, (user, password) if login else None)


def _missing_extra(label: str, extra: str, error: ImportError) -> TargetError:
    return TargetError(
        f"--scylla={label}: {error}; install its extra: pip install 'scylla-cdc[{extra}]'"
    )
