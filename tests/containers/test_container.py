"""`ScyllaContainer` with a real Docker engine.

`tests/cdc_reader/test_nodes.py` tests the methods that add, stop and remove nodes.

The tests run with `--scylla=docker[:IMAGE]`, on ScyllaDB's image or the image of `make
embedded-image`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cassandra import AuthenticationFailed
from cassandra.cluster import NoHostAvailable

from cdc_reader.testing import ContainerError, ScyllaContainer
from cdc_reader.testing.cql_session import open_session

USE = """

def test_nodes_come_and_go(real_cluster):
    node = real_cluster.join()
    assert len(real_cluster.nodes) == 4
    real_cluster.take_down(node)
    real_cluster.bring_up(node)
    real_cluster.leave(node)
    assert len(real_cluster.nodes) == 3
"""


@pytest.fixture(scope="module")
def image(request: pytest.FixtureRequest) -> str:
    """The image to test, as given by `--scylla`."""
    kind, _, image = str(request.config.getoption("--scylla")).partition(":")
    if kind != "docker":
        pytest.skip("needs a Docker engine: --scylla=docker[:IMAGE]")
    return image or "scylladb/scylla:latest"


def test_one_node_answers_at_a_port_of_this_machine(image: str) -> None:
    """CQL and the REST API respond on local ports. The container is gone after the `with` block."""
    with ScyllaContainer(image) as scylla:
        (node,) = scylla.nodes
        assert scylla.connect().execute("SELECT key FROM system.local").one().key == "local"
        assert node.rest("storage_service/operation_mode") == "NORMAL"
        with pytest.raises(ContainerError, match="shares no network: expected nodes=2"):
            scylla.join()
    with pytest.raises((NoHostAvailable, OSError)):
        scylla.connect(connect_timeout=1)


def test_keyspaces_are_on_tablets_if_asked(image: str) -> None:
    """With `tablets=True`, keyspaces use tablets by default."""
    with ScyllaContainer(image, tablets=True) as scylla:
        session = scylla.connect()
        session.execute(
            "CREATE KEYSPACE ks WITH replication = "
            "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        )
        rows = session.execute("SELECT keyspace_name FROM system_schema.scylla_keyspaces")
        assert "ks" in {row.keyspace_name for row in rows}


def test_a_login_is_asked_for(image: str) -> None:
    """The superuser's name and password are accepted. A wrong password is rejected.

    From ScyllaDB 2026.2 on, there is a superuser only because its name and password are given.
    """
    with ScyllaContainer(image, login=True) as scylla:
        assert scylla.connect().execute("SELECT key FROM system.local").one().key == "local"
        with pytest.raises(NoHostAvailable) as refused:
            open_session(scylla.host, scylla.port, ("cassandra", "wrong"))
        assert isinstance(next(iter(refused.value.errors.values())), AuthenticationFailed)


def test_a_refused_login_is_told_at_once(image: str) -> None:
    """A login that the server requires or refuses is an error at once, whatever the timeout."""
    required = ["--authenticator", "PasswordAuthenticator"]
    with (
        pytest.raises(ContainerError, match="requires a login: expected login=True"),
        ScyllaContainer(image, options=required, timeout=1_000),
    ):
        pass
    scylla = ScyllaContainer(image, login=True, timeout=1_000)
    scylla.credentials = ("cassandra", "wrong")
    with pytest.raises(ContainerError, match="refuses the login of 'cassandra'"), scylla:
        pass


def test_a_server_that_ends_is_told_with_its_last_words(image: str) -> None:
    """If the server exits, for example after an unknown option, its message is shown."""
    with pytest.raises(ContainerError) as failed, ScyllaContainer(image, options=["--nonsense"]):
        pass
    assert "the container is exited" in str(failed.value)
    assert "unrecognised option '--nonsense'" in str(failed.value)
    assert "\n" not in str(failed.value)


def test_the_page_shows_a_fixture_that_works(image: str, pytester: pytest.Pytester) -> None:
    """The page's fixture runs three nodes. A fourth node joins, is killed, returns and leaves."""
    page = Path(__file__).parents[2] / "docs" / "howto" / "test-your-pipeline.md"
    (block,) = re.findall(
        r"^```python\n([^`]*ScyllaContainer[^`]*)^```$", page.read_text(), re.MULTILINE
    )
    pytester.makepyfile(block.replace('"2026.1"', repr(image)) + USE)
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_a_version_is_a_tag_of_scylladb_s_image() -> None:
    """A version number is a tag of ScyllaDB's image. Any other text is the name of an image."""
    assert ScyllaContainer("5.2").image == "scylladb/scylla:5.2"
    assert ScyllaContainer("mine").image == "mine"


def test_no_nodes_are_refused() -> None:
    """A number of nodes below one raises an error before anything starts."""
    with pytest.raises(ContainerError, match="0 nodes: expected at least 1"):
        ScyllaContainer("5.2", nodes=0)
