"""Views of one connection and of one table, whose waits different stops end."""

from __future__ import annotations

import weakref

import pytest

from cdc_reader import ConnectionConfig, ReadConfig
from cdc_reader.cluster import CdcTable, Connection
from cdc_reader.cql.names import TableName
from cdc_reader.errors import StoppedError
from cdc_reader.reading.retry import NEVER, Interruption, Stop
from tests.cdc_reader.support.followed import Followed


@pytest.mark.parametrize("tablets", [False, True])
def test_views_of_a_table_share_what_they_learn(tablets: bool) -> None:
    """A view does not ask again what another view has asked, such as the kind of generations."""
    followed = Followed(tablets=tablets)
    table = CdcTable(followed.connection(), TableName("ks", "t"))
    first, other = (table.interrupted_by(Interruption(Stop())) for _ in range(2))
    found = first.generations.timestamps()
    followed.asked.clear()
    assert other.generations.timestamps() == found
    assert len(followed.asked) == 1


def test_each_view_has_its_own_stop() -> None:
    """A stop ends the queries of its own view, and of no other."""
    table, stop = CdcTable(Followed().connection(), TableName("ks", "t")), Stop()
    stopped, other = table.interrupted_by(Interruption(stop)), table.interrupted_by(NEVER)
    stop.set()
    with pytest.raises(StoppedError):
        stopped.schema()
    assert other.schema() == table.schema()


def test_a_connection_lives_as_long_as_its_views() -> None:
    """Connections are registered by weak references, so that forked processes can reset them."""
    connection = Connection(ConnectionConfig("host"), ReadConfig())
    alive = weakref.ref(connection)
    view = connection.interrupted_by(Interruption(Stop())).interrupted_by(Interruption(Stop()))
    del connection
    assert alive() is not None
    del view
    assert alive() is None
