"""Missing permissions: each error names the required grant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from cdc_reader import CdcReader, ConnectionConfig, CqlWriter, ReadConfig, TableName
from cdc_reader._time import BEGINNING, FOREVER
from cdc_reader.checkpoints import ScyllaCheckpoints
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.cluster import CdcTable, Connection
from cdc_reader.cluster.errors import with_grant
from cdc_reader.cql.statement import Statement
from cdc_reader.cql.types import Native
from cdc_reader.errors import PermissionDeniedError
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.streams.task import RangeTask
from cdc_reader.streams.window import Window
from cdc_reader.testing import EmbeddedScylla, Fault

VNODES, TABLETS = "{'enabled': false}", "{'enabled': true}"
TABLE = TableName("ks", "t")
RING = RangeTask(Window(BEGINNING, FOREVER), -(1 << 63), (1 << 63) - 1)
GENERATION_TABLES = ("cdc_generation_timestamps", "cdc_streams_descriptions_v2")


@pytest.fixture(params=[VNODES, TABLETS], ids=["vnodes", "tablets"])
def server(request: pytest.FixtureRequest) -> Iterator[EmbeddedScylla]:
    """A server that requires a login, with a table and its log."""
    with EmbeddedScylla(credentials=("reader", "x")) as server:
        server.execute(
            "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', "
            f"'replication_factor': 1}} AND tablets = {request.param}"
        )
        server.execute("CREATE TABLE ks.t (pk int PRIMARY KEY) WITH cdc = {'enabled': true}")
        server.execute("INSERT INTO ks.t (pk) VALUES (1)")
        yield server


def denied(server: EmbeddedScylla, match: str, action: Callable[[ConnectionConfig], object]) -> str:
    """Return the one-line error of `action`. The server denies statements that contain `match`."""
    config = ConnectionConfig(server.contact_point, username="reader", password="x")
    with (
        server.faults.during(Fault("unauthorized", match, times=None)),
        pytest.raises(PermissionDeniedError) as caught,
    ):
        action(config)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def read(config: ConnectionConfig) -> None:
    """Read the log up to now."""
    with CdcReader(config, "ks.t") as reader:
        for _ in reader.batches():
            pass


def test_reading_a_log_requires_select_on_its_base_table(server: EmbeddedScylla) -> None:
    """Reading a log requires SELECT on its base table, because servers check that permission."""
    said = denied(server, "ks.t_scylla_cdc_log", read)
    assert said.startswith("reading ks.t_scylla_cdc_log: User reader has no SELECT permission on ")
    assert said.endswith("; ask an administrator for: GRANT SELECT ON ks.t TO reader")


def test_a_revoked_permission_is_raised_at_once(server: EmbeddedScylla) -> None:
    """The error for a revoked permission is raised at once, without a retry."""
    refused = Fault("unauthorized", "ks.t_scylla_cdc_log", times=None)
    config = ConnectionConfig(server.contact_point, username="reader", password="x")
    with closing(Connection(config, ReadConfig())) as connection:
        table = CdcTable(connection, TABLE)
        source = table.source(table.schema())
        assert [batch.num_rows for batch in source.read(RING)] == [1]
        with server.faults.during(refused):
            with pytest.raises(PermissionDeniedError, match=r"GRANT SELECT ON ks\.t TO reader$"):
                list(source.read(RING))
            assert server.faults.struck(refused) == 1


def test_the_tables_of_streams_have_grants_of_their_own(server: EmbeddedScylla) -> None:
    """The tables that list streams require grants too. Vnodes and tablets use different tables."""
    if server.catalog.keyspaces["ks"].tablets is None:
        schema, tables = "system_distributed", GENERATION_TABLES
    else:
        schema, tables = "system", ("cdc_timestamps", "cdc_streams")
    for table in (f"{schema}.{name}" for name in tables):
        assert denied(server, table, read).endswith(f": GRANT SELECT ON {table} TO reader")


@pytest.mark.parametrize(
    ("statement", "grant"),
    [
        ("create table if not exists ks.cdc_checkpoints", "CREATE ON KEYSPACE ks"),
        ("from ks.cdc_checkpoints", "SELECT ON ks.cdc_checkpoints"),
        ("insert into ks.cdc_checkpoints", "MODIFY ON ks.cdc_checkpoints"),
    ],
)
def test_checkpoints_require_create_select_and_modify(
    server: EmbeddedScylla, statement: str, grant: str
) -> None:
    """The errors of a checkpoint store name the missing permission."""

    def use(config: ConnectionConfig) -> None:
        with closing(ScyllaCheckpoints(config, "ks")) as checkpoints:
            checkpoints.save(CheckpointName("app", TABLE), Checkpoint(1))

    assert denied(server, statement, use).endswith(f": GRANT {grant} TO reader")


def test_a_copy_requires_modify_on_its_target(server: EmbeddedScylla) -> None:
    """If a role may not write to the target, the error names the missing grant and the role."""
    insert = Statement("INSERT INTO ks.t (pk) VALUES (?)", (Native("int"),), (2,))

    def write(config: ConnectionConfig) -> None:
        with closing(CqlWriter(config)) as writer:
            writer.write([insert])

    assert denied(server, "insert into ks.t", write).endswith(": GRANT MODIFY ON ks.t TO reader")


@pytest.mark.parametrize(
    ("refusal", "remedy"),
    [
        (
            "User Ann has no SELECT permission on <table Shop.Orders> or any of its parents",
            'GRANT SELECT ON "Shop"."Orders" TO "Ann"',
        ),
        (
            "User a b has no CREATE permission on <keyspace shop> or any of its parents",
            'GRANT CREATE ON KEYSPACE shop TO "a b"',
        ),
        ("You have not logged in", "ask an administrator for the permission"),
        (
            "User r has no EXECUTE permission on <function ks.f(int)> or any of its parents",
            "ask an administrator for the permission",
        ),
    ],
)
def test_names_are_quoted_where_they_must_be(refusal: str, remedy: str) -> None:
    """In the suggested GRANT statement, names are quoted only where CQL requires it."""
    said = with_grant(refusal)
    assert said.startswith(f"{refusal}; ")
    assert said.endswith(remedy)
