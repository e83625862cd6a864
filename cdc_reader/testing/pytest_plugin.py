"""A pytest plugin that runs a test suite on a server of your choice.

``--scylla=embedded`` (the default), ``--scylla=docker[:IMAGE]`` or
``--scylla=[USER:PASSWORD@]HOST:PORT`` selects the server. The fixture `scylla` is that server,
already started. `keyspace` is the name of a new keyspace on it. `scylla_nodes` is a separate
three-node cluster, which tests may change. A test marked ``needs("faults")`` is skipped, with the
reason, on a server without that capability. If the selected server is not available, the run ends
with an error before the first test. At the end, the run prints a table of test outcomes by server.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

from cdc_reader.testing.nodes import ScyllaNodes
from cdc_reader.testing.tally import PROPERTY, VERSION, Tally
from cdc_reader.testing.target import CAPABILITIES, Scylla, Target, TargetError, parse_target


class Run:
    """The server of one pytest run, opened once, on first use."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._scylla: Scylla | None = None
        self._resources = ExitStack()

    def scylla(self) -> Scylla:
        """Return the server; if it is not available, end the run with an error."""
        if self._scylla is None:
            try:
                self._scylla = self._resources.enter_context(self.target.open())
            except TargetError as error:
                pytest.exit(str(error), returncode=pytest.ExitCode.USAGE_ERROR)
        return self._scylla

    def close(self) -> None:
        """Stop the server if it was opened."""
        self._resources.close()


_RUN = pytest.StashKey[Run]()
_SERVERS = {"scylla", "scylla_nodes"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option ``--scylla``."""
    parser.getgroup("scylla").addoption(
        "--scylla",
        metavar="TARGET",
        help="server for tests: embedded (default), docker[:IMAGE] or [USER:PASSWORD@]HOST:PORT",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Parse ``--scylla`` before anything is collected."""
    capabilities = ", ".join(f"{name} ({means})" for name, means in CAPABILITIES.items())
    config.addinivalue_line(
        "markers", f"needs(*capabilities): skip where the server cannot do it: {capabilities}"
    )
    try:
        config.stash[_RUN] = Run(parse_target(config.getoption("--scylla") or "embedded"))
    except TargetError as error:
        raise pytest.UsageError(str(error)) from error
    config.pluginmanager.register(Tally())


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the server."""
    if run := config.stash.get(_RUN, None):
        run.close()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Record which server a test runs on; reject capabilities that no server has."""
    if _uses_server(item):
        item.user_properties.append((PROPERTY, item.config.stash[_RUN].target.label))
    if unknown := _needs(item) - CAPABILITIES.keys():
        known = ", ".join(CAPABILITIES)
        raise pytest.UsageError(f"{item.nodeid} needs {', '.join(unknown)}; expected {known}")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Open an explicitly selected server, so that no test runs if it is not available."""
    config = session.config
    if config.getoption("--scylla") and not config.getoption("collectonly"):
        config.stash[_RUN].scylla()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that needs a capability that the server lacks."""
    target = item.config.stash[_RUN].target
    for capability in sorted(_needs(item) - target.capabilities):
        pytest.skip(f"needs {capability} ({CAPABILITIES[capability]}), which {target.label} lacks")


def pytest_runtest_call(item: pytest.Item) -> None:
    """Record which version a test runs on."""
    if _uses_server(item):
        item.user_properties.append((VERSION, item.config.stash[_RUN].scylla().version))


@pytest.fixture(scope="session")
def scylla(request: pytest.FixtureRequest) -> Scylla:
    """The ScyllaDB server of this test run."""
    return request.config.stash[_RUN].scylla()


@pytest.fixture
def keyspace(scylla: Scylla) -> Iterator[str]:
    """The name of a new keyspace, which is dropped after the test."""
    name = f"ks_{uuid.uuid4().hex[:12]}"
    scylla.session.execute(f"CREATE KEYSPACE {name} WITH {_properties(scylla)}")
    yield name
    scylla.session.execute(f"DROP KEYSPACE {name}")


@pytest.fixture(scope="module")
def scylla_nodes(request: pytest.FixtureRequest) -> Iterator[ScyllaNodes]:
    """A three-node cluster that a module's tests share and may change.

    Tests that use it need no marker.
    """
    try:
        with request.config.stash[_RUN].target.nodes() as nodes:
            yield nodes
    except TargetError as error:
        pytest.fail(str(error), pytrace=False)


def _uses_server(item: pytest.Item) -> bool:
    return bool(_SERVERS.intersection(_fixtures(item)))


def _fixtures(item: pytest.Item) -> Sequence[str]:
    return getattr(item, "fixturenames", ())


def _needs(item: pytest.Item) -> set[str]:
    marked = {str(name) for marker in item.iter_markers("needs") for name in marker.args}
    return marked | {"nodes"} if "scylla_nodes" in _fixtures(item) else marked


def _properties(scylla: Scylla) -> str:
    """Return the properties of a keyspace that has one replica and does not use tablets."""
    one_replica = "replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
    if "tablets" in scylla.session.cluster.metadata.keyspaces["system"].tables:
        return f"{one_replica} AND tablets = {{'enabled': false}}"
    return one_replica
