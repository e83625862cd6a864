"""Runs the real ScyllaDB in containers, with testcontainers (extra ``docker``)."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any, Self
from urllib.error import URLError
from urllib.request import Request, urlopen

from attrs import define
from cassandra import AuthenticationFailed
from cassandra.cluster import NoHostAvailable, Session
from docker.errors import DockerException
from tenacity import (
    RetryCallState,
    RetryError,
    Retrying,
    retry_if_exception_type,
    stop_after_delay,
    stop_any,
    wait_fixed,
)
from tenacity.stop import stop_base
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from cdc_reader.testing.cql_session import open_session

IMAGE = "scylladb/scylla:latest"
CQL_PORT = 9042
API_PORT = 10000

# Minimal resources: one shared core and no disk tuning. The REST API listens on all addresses.
SMALL = (
    "--smp", "1", "--memory", "1G", "--overprovisioned", "1", "--developer-mode", "1",
    "--api-address", "0.0.0.0",  # noqa: S104 - inside the container
)  # fmt: skip
WITH_LOGIN = ("--authenticator", "PasswordAuthenticator", "--authorizer", "CassandraAuthorizer")
SUPERUSER = ("cassandra", "cassandra")
# From 2026.2 on, the server creates a superuser only if these options name one; the hash is that of
# the password above. Before 5.4, it does not know them, and always creates this superuser.
CREATE_SUPERUSER = (
    "--auth-superuser-name", SUPERUSER[0],
    "--auth-superuser-salted-password",
    "$6$scylla.cdc.tests$3R57VCjgN.Yo/uWCJ5uRGKSjtAadFl5/eiuqovC1NvJtUFIL6cAltB/pYUiX8hSc6Q6uY9SRV5p2VJ4q7mWLn1",
)  # fmt: skip
_UNKNOWN_SUPERUSER = "unrecognised option '--auth-superuser"
_HAS_SUPERUSER = "Created default superuser authentication record"
"""The server logs this once it has created the superuser, in some versions after it listens."""
_ERROR = re.compile(r"^ERROR\b|\berror: ")
_HTTP_PATIENCE = 600.0  # seconds; a decommission ends only when the node has streamed its data


class ContainerError(Exception):
    """A container failed; the message is one line."""


class _NotYet(Exception):
    """A node is not ready yet; the message says why."""


@define(eq=False)
class ContainerNode:
    """A node: its container, and the `address` at which the other nodes reach it."""

    container: DockerContainer
    address: str = ""

    def rest(self, path: str, method: str = "GET") -> Any:
        """Send a request to the node's REST API; return the decoded JSON response.

        Raises OSError if the node returns an error or does not respond.
        """
        host = self.container.get_container_host_ip()
        url = f"http://{host}:{self.container.get_exposed_port(API_PORT)}/{path}"
        with urlopen(Request(url, method=method), timeout=_HTTP_PATIENCE) as answer:
            body = answer.read()
        return json.loads(body) if body else None

    @property
    def log(self) -> list[str]:
        """The lines that the server printed, without empty ones."""
        log = b"\n".join(self.container.get_logs()).decode(errors="replace")
        return [line.strip() for line in log.splitlines() if line.strip()]

    @property
    def last_error(self) -> str:
        """The last error that the server printed, or else its last line."""
        log = self.log or ["nothing"]
        return next((line for line in reversed(log) if _ERROR.search(line)), log[-1])


class _LogIsSilent(stop_base):
    """Tells whether a node's log has not grown for `timeout` seconds; asked again and again."""

    def __init__(self, node: ContainerNode, timeout: float) -> None:
        self._node = node
        self._timeout = timeout
        self._lines, self._since = -1, 0.0

    def __call__(self, retry_state: RetryCallState) -> bool:  # noqa: ARG002 - tenacity's name
        now, lines = time.monotonic(), len(self._node.log)
        if lines != self._lines:
            self._lines, self._since = lines, now
        return now - self._since >= self._timeout


class ScyllaContainer:
    """ScyllaDB in one container per node; the containers run until the `with` block ends.

        with ScyllaContainer("2026.1", nodes=3, tablets=True) as scylla:
            reader = CdcReader(scylla.contact_point, "shop.orders")

    Args:
        image: an image, or a version such as "5.2", which selects that tag of ScyllaDB's image.
        nodes: the initial number of nodes. More than one node requires a system, such as Linux,
            that can reach the addresses of containers; `join` requires at least two.
        tablets: whether keyspaces use tablets by default; None for the server's default. Versions
            without tablets accept only None.
        login: require clients to log in with `credentials`, which are those of a superuser.
        timeout: how many seconds a node that starts may log nothing; a slow one gets up to ten
            times as long while its log grows.
        options: further server options, such as ``["--ring-delay-ms", "3000"]``.

    Raises ContainerError if Docker or the image is not available, or a node does not start in time.
    """

    def __init__(
        self,
        image: str = IMAGE,
        *,
        nodes: int = 1,
        tablets: bool | None = None,
        login: bool = False,
        timeout: float = 180,
        options: Sequence[str] = (),
    ) -> None:
        if nodes < 1:
            raise ContainerError(f"{nodes} nodes: expected at least 1")
        self.image = f"scylladb/scylla:{image}" if re.fullmatch(r"[\d.]+", image) else image
        self.credentials = SUPERUSER if login else None
        self.host = ""
        self.port = 0
        self.nodes: tuple[ContainerNode, ...] = ()
        self._wanted = nodes
        self._timeout = timeout
        mode = () if tablets is None else ("enabled" if tablets else "disabled",)
        self._options = [
            *SMALL,
            *(WITH_LOGIN if login else ()),
            *(f"--tablets-mode-for-new-keyspaces={each}" for each in mode),
            *options,
        ]
        self._network: Network | None = None

    @property
    def contact_point(self) -> str:
        """The ``HOST:PORT`` at which clients outside the containers reach the first node."""
        return f"{self.host}:{self.port}"

    def start(self) -> Self:
        """Start the nodes one by one; return when all of them accept requests."""
        try:
            with self._docker_errors_translated():
                if self._wanted > 1:
                    self._network = Network().create()
                self._add_first()
                for _ in range(self._wanted - 1):
                    self.join()
        except BaseException:
            with suppress(DockerException):
                self.stop()
            raise
        return self

    def stop(self) -> None:
        """Remove the containers, their data and their network."""
        for node in self.nodes:
            node.container.stop()
        self.nodes = ()
        if self._network is not None:
            self._network.remove()
            self._network = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def connect(self, **settings: Any) -> Session:
        """Open a driver session with the first node; `session.cluster.shutdown()` closes it."""
        return open_session(self.host, self.port, self.credentials, **settings)

    def join(self) -> ContainerNode:
        """Add a node in another container; return it when all nodes see it as up and normal."""
        if self._network is None:
            raise ContainerError("a single node shares no network: expected nodes=2 or more")
        with self._docker_errors_translated():
            return self._add("--seeds", self.nodes[0].address)

    def leave(self, node: ContainerNode) -> None:
        """Decommission a node, so that its data moves to other nodes; then remove its container."""
        self._rest(node, "storage_service/decommission", "POST")
        self.nodes = tuple(each for each in self.nodes if each is not node)
        with self._docker_errors_translated():
            node.container.stop()
        for each in self.nodes:
            self._await(each, partial(self._check_gone, each, node))

    def take_down(self, node: ContainerNode) -> None:
        """Kill a node's container, to simulate a crash."""
        with self._docker_errors_translated():
            node.container.get_wrapped_container().kill()

    def bring_up(self, node: ContainerNode) -> None:
        """Start a node that was taken down; return when all nodes see it as up and normal."""
        with self._docker_errors_translated():
            node.container.get_wrapped_container().start()
            self._await_node(node)

    def check_and_repair_streams(self) -> None:
        """Create a generation of streams unless the newest one matches the token ring."""
        self._rest(self.nodes[0], "storage_service/cdc_streams_check_and_repair", "POST")

    def _add_first(self) -> None:
        if self.credentials is None:
            self._add()
            return
        try:
            self._add(*CREATE_SUPERUSER)
        except ContainerError as error:
            if _UNKNOWN_SUPERUSER not in str(error):
                raise
            self.nodes[0].container.stop()
            self.nodes = ()
            self._add()

    def _add(self, *options: str) -> ContainerNode:
        container = DockerContainer(self.image, ports=[CQL_PORT, API_PORT], network=self._network)
        node = ContainerNode(container.with_command([*self._options, *options]))
        self.nodes = (*self.nodes, node)
        container.start()
        self._await_node(node)
        return node

    def _await_node(self, node: ContainerNode) -> None:
        """Wait until the node accepts CQL requests, and all nodes see it as up and normal."""
        self._await(node, partial(self._find, node))
        if self._network is not None:
            for each in filter(self._is_running, self.nodes):
                self._await(each, partial(self._check_live, each, node))

    def _find(self, node: ContainerNode) -> None:
        """Set the node's addresses, and log in to check that the server itself accepts requests.

        Docker accepts connections before the server does.
        """
        if not self._is_running(node):
            raise self._no_answer(node, f"the container is {node.container.status}")
        if self._network is not None:
            networks = node.container.get_wrapped_container().attrs["NetworkSettings"]["Networks"]
            node.address = networks[self._network.name]["IPAddress"]
            host, port = node.address, CQL_PORT
        else:
            host = node.container.get_container_host_ip()
            port = node.container.get_exposed_port(CQL_PORT)
        if node is self.nodes[0]:
            self.host, self.port = host, port
        self._log_in(host, port)

    def _log_in(self, host: str, port: int) -> None:
        # A server that creates the superuser after this may still refuse the login.
        has_superuser = any(_HAS_SUPERUSER in line for node in self.nodes for line in node.log)
        try:
            open_session(host, port, self.credentials).cluster.shutdown()
        except NoHostAvailable as error:
            if not any(isinstance(each, AuthenticationFailed) for each in error.errors.values()):
                raise
            if self.credentials is None:
                raise ContainerError(
                    f"{self.image}: the server requires a login: expected login=True"
                ) from error
            refused = f"the server refuses the login of {self.credentials[0]!r}"
            if has_superuser:
                raise ContainerError(f"{self.image}: {refused}, which it created") from error
            raise _NotYet(refused) from error

    @staticmethod
    def _is_running(node: ContainerNode) -> bool:
        node.container.reload()
        return node.container.status == "running"

    @staticmethod
    def _check_live(at: ContainerNode, node: ContainerNode) -> None:
        if node.address not in at.rest("gossiper/endpoint/live"):
            raise _NotYet(f"{at.address} does not see {node.address} up")
        if (mode := node.rest("storage_service/operation_mode")) != "NORMAL":
            raise _NotYet(f"{node.address} is {mode}")

    @staticmethod
    def _check_gone(at: ContainerNode, node: ContainerNode) -> None:
        if node.address in at.rest("gossiper/endpoint/live"):
            raise _NotYet(f"{at.address} still sees {node.address}")

    def _await(self, node: ContainerNode, check: Callable[[], None]) -> None:
        attempts = Retrying(
            stop=stop_any(_LogIsSilent(node, self._timeout), stop_after_delay(10 * self._timeout)),
            wait=wait_fixed(0.5),
            retry=retry_if_exception_type(
                (NoHostAvailable, OSError, URLError, TimeoutError, _NotYet)
            ),
        )
        try:
            attempts(check)
        except RetryError as error:
            cause = error.last_attempt.exception()
            found = f": {cause}" if isinstance(cause, _NotYet) else ""
            silent = f"no answer, and nothing in its log within {self._timeout:g} s"
            raise self._no_answer(node, f"{silent}{found}") from error

    def _rest(self, node: ContainerNode, path: str, method: str) -> None:
        try:
            node.rest(path, method)
        except OSError as error:
            raise ContainerError(
                f"{self.image}: {method} {path} at {node.address or self.host}: {error}; "
                f"its last error is: {node.last_error}"
            ) from error

    def _no_answer(self, node: ContainerNode, found: str) -> ContainerError:
        return ContainerError(
            f"{self.image}: {found}, expected a server on port {CQL_PORT}; "
            f"its last error is: {node.last_error}"
        )

    @contextmanager
    def _docker_errors_translated(self) -> Iterator[None]:
        try:
            yield
        except DockerException as error:
            raise ContainerError(
                f"{self.image}: Docker says: {' '.join(str(error).split())}; check that the "
                "Docker engine runs and that the image can be pulled"
            ) from error
