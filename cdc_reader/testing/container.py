"""The real ScyllaDB in a container, through testcontainers (extra ``docker``)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self

from cassandra.cluster import NoHostAvailable
from docker.errors import DockerException
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_delay, wait_fixed
from testcontainers.core.container import DockerContainer

from cdc_reader.testing.cql_session import open_session

IMAGE = "scylladb/scylla:latest"
CQL_PORT = 9042

# The minimum for a server: one shared core, and no tuning of disks.
SMALL = "--smp 1 --memory 1G --overprovisioned 1 --developer-mode 1"
WITH_LOGIN = "--authenticator PasswordAuthenticator --authorizer CassandraAuthorizer"
FIRST_SUPERUSER = ("cassandra", "cassandra")


class ContainerError(Exception):
    """The container did not start a server; the message is one line."""


class ScyllaContainer:
    """One node of ScyllaDB in a container, for as long as the `with` block lasts.

    With `login`, clients must log in with `credentials`, the first superuser's. `timeout` is how
    long the server may take to answer CQL, in seconds. Raises ContainerError without Docker,
    without the image, or when there is no answer in time.
    """

    def __init__(self, image: str = IMAGE, *, login: bool = False, timeout: float = 180) -> None:
        self.image = image
        self.credentials = FIRST_SUPERUSER if login else None
        self.host = ""
        self.port = 0
        self._timeout = timeout
        with self._docker_errors_translated():
            self._container = DockerContainer(image, ports=[CQL_PORT])
        self._container.with_command(f"{SMALL} {WITH_LOGIN}" if login else SMALL)

    @property
    def contact_point(self) -> str:
        """``HOST:PORT``, at which clients outside the container reach the server."""
        return f"{self.host}:{self.port}"

    def start(self) -> Self:
        """Start the container and return once the server answers."""
        try:
            with self._docker_errors_translated():
                self._container.start()
                self._await_address()
                self._await_answer()
        except BaseException:
            with suppress(DockerException):
                self.stop()
            raise
        return self

    def stop(self) -> None:
        """Remove the container and its data."""
        self._container.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _await_address(self) -> None:
        self.host = self._container.get_container_host_ip()
        try:
            self.port = self._container.get_exposed_port(CQL_PORT)
        except TimeoutError as error:
            raise self._no_answer(str(error)) from error

    def _await_answer(self) -> None:
        """Retry logging in until it works: Docker accepts connections before the server does."""
        attempts = Retrying(
            stop=stop_after_delay(self._timeout),
            wait=wait_fixed(0.5),
            retry=retry_if_exception_type((NoHostAvailable, OSError)),
        )
        try:
            attempts(self._log_in)
        except RetryError as error:
            raise self._no_answer(f"no answer within {self._timeout:g} s") from error

    def _log_in(self) -> None:
        self._container.reload()
        if self._container.status != "running":
            raise self._no_answer(f"the container is {self._container.status}")
        open_session(self.host, self.port, self.credentials).cluster.shutdown()

    def _no_answer(self, found: str) -> ContainerError:
        log = b"\n".join(self._container.get_logs()).decode(errors="replace").split("\n")
        last = next((line for line in reversed(log) if line.strip()), "nothing")
        return ContainerError(
            f"{self.image}: {found}, expected a server on port {CQL_PORT}; "
            f"the last line of its log is: {last.strip()}"
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
