"""`scylla-cdc import-position`: continues where scylla-cdc-go or scylla-cdc-rust stopped.

Both libraries store the position of each stream in a table, and read one generation after another.
An application of this project has one position for all streams, so it continues from the earliest
stored position of the last generation. A stream without a stored position counts as read up to the
time at which the library would begin to read the stream. This is the beginning of the generation or
the time from which scylla-cdc-go first read, whichever is later.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import click
from attrs import frozen

from cdc_reader._time import Micros, datetime_micros, format_timestamp
from cdc_reader.checkpoints.store import CheckpointName, CheckpointStore
from cdc_reader.cli.connection import connection_options
from cdc_reader.cli.failure import Misuse, cli_errors
from cdc_reader.cli.following import CheckpointPlace, checkpoint_options
from cdc_reader.cluster import ClusterClock, Connection, SchemaSource
from cdc_reader.cluster.generations import TableGenerations
from cdc_reader.cluster.queries import Query
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.cql import timeuuid
from cdc_reader.cql.names import TableName
from cdc_reader.errors import CheckpointError, QueryRefusedError
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.reading.expiry import TtlHistory

_MOST_KEYS = 100
"""The most partitions that a query may name, by ScyllaDB's default limit."""


@frozen
class Positions(ABC):
    """The positions that another library stored in `place`, for the reader of `table`."""

    queries: Connection
    place: TableName
    table: TableName
    application: str

    @abstractmethod
    def begun(self) -> Iterator[tuple[Micros, Micros]]:
        """Yield pairs of times; the first pair is for the last generation that the library began.

        In each pair, the first time is the start of a generation. The second is the time from which
        the library reads a stream without a position. `earliest` uses only the first pair.
        """

    @abstractmethod
    def of(self, generation: Micros, streams: Sequence[bytes]) -> Iterator[Micros]:
        """Yield the stored positions of the streams; a stream may have none."""

    def earliest(self) -> Micros:
        """Return the write time, in µs, before which the library has handled all changes."""
        begun = next(self.begun(), None)
        if begun is None:
            raise CheckpointError(
                f"table {self.place} has no position of application {self.application!r}: check "
                "the names of the table and of the application"
            )
        generation, beginning = begun
        streams = self.streams(generation)
        if not streams:
            raise CheckpointError(
                f"table {self.place} has positions in the generation of "
                f"{format_timestamp(generation)}, which {self.table} does not have: check the "
                "names of the tables, and start with '--from earliest' if they are right"
            )
        positions: list[Micros] = []
        for first in range(0, len(streams), _MOST_KEYS):
            positions += self.of(generation, streams[first : first + _MOST_KEYS])
        return min(positions if len(positions) == len(streams) else [beginning, *positions])

    def rows(self, cql: str, *values: object, keys: Sequence[bytes] = ()) -> Iterator[Any]:
        """Yield the rows of a query.

        In `cql`, the first ``{}`` stands for the table, and the second for the keys.
        """
        text = cql.format(self.place.cql, ", ".join("?" * len(keys)))
        try:
            for batch in self.queries.batches(Query(text, (*values, *keys))):
                yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
        except QueryRefusedError:
            raise CheckpointError(
                f"{self.place} is not a table of positions of this library: give the table in "
                "which the library stores them, and its name, go or rust"
            ) from None

    def streams(self, generation: Micros) -> list[bytes]:
        """Return the streams of a generation; empty if the cluster does not list the generation."""
        known = generation in self.source.timestamps()
        groups = self.source.groups(generation) if known else ()
        return [bytes(stream) for group in groups for stream in group.streams]

    @property
    def source(self) -> TableGenerations:
        """The generations of the table."""
        return TableGenerations(self.queries, self.table)


class RustPositions(Positions):
    """Positions in the table of scylla-cdc-rust's `TableBackedCheckpointSaver`.

    The table serves a single reader.
    """

    def begun(self) -> Iterator[tuple[Micros, Micros]]:
        for (start,) in self.rows("SELECT generation FROM {} WHERE stream_id = ?", b"\0"):
            yield datetime_micros(start), datetime_micros(start)
        yield from self._newest_with_position()

    def _newest_with_position(self) -> Iterator[tuple[Micros, Micros]]:
        """Yield the generations in which a stream has a position, newest first.

        The row that the library stores for a generation is not used. It is written only when the
        library begins to read the generation, and expires, by default after seven days, while the
        positions of the streams are renewed.
        """
        stored = {stream for (stream,) in self.rows("SELECT stream_id FROM {}")}
        if stored:
            for start in sorted(self.source.timestamps(), reverse=True):
                if not stored.isdisjoint(self.streams(start)):
                    yield start, start

    def of(
        self,
        generation: Micros,  # noqa: ARG002 - a stream belongs to one generation
        streams: Sequence[bytes],
    ) -> Iterator[Micros]:
        for (at,) in self.rows("SELECT time FROM {} WHERE stream_id IN ({})", keys=streams):
            yield datetime_micros(at)


class GoPositions(Positions):
    """Positions in the table of scylla-cdc-go's `TableBackedProgressManager`.

    The library stores the generation under an empty timestamp, which CQL can express only with a
    function. In the same row, newer versions store the time from which the application first read.
    They store this time before they store the generation.
    """

    def begun(self) -> Iterator[tuple[Micros, Micros]]:
        cql = (
            "SELECT current_generation, last_timestamp FROM {} WHERE generation = "
            "blobAsTimestamp(0x) AND application_name = ? AND table_name = '' AND stream_id = 0x"
        )
        for start, first in self.rows(cql, self.application):
            if start is not None:
                generation = datetime_micros(start)
                yield generation, generation if first is None else max(generation, _micros(first))

    def of(self, generation: Micros, streams: Sequence[bytes]) -> Iterator[Micros]:
        cql = (
            "SELECT last_timestamp FROM {} WHERE generation = ? AND application_name = ? "
            "AND table_name = ? AND stream_id IN ({})"
        )
        key = (generation // 1_000, self.application, str(self.table))
        for (last,) in self.rows(cql, *key, keys=streams):
            yield _micros(last)


def _micros(time: object) -> Micros:
    """Return the time of a time UUID, in µs."""
    return timeuuid.micros(uuid.UUID(str(time)).bytes)


_LIBRARIES = {"go": GoPositions, "rust": RustPositions}


@click.command("import-position")
@click.argument("library", type=click.Choice(sorted(_LIBRARIES)))
@click.argument("positions", metavar="KS.POSITIONS")
@click.argument("table", metavar="KS.TABLE")
@click.option(
    "--application",
    metavar="NAME",
    required=True,
    help="Name under which to save the position. With go, also the name of the old application.",
)
@click.option(
    "--from-application",
    metavar="NAME",
    help="With go, the old application's name, if it differs.",
)
@checkpoint_options(
    "Save the position in this file; without a file or table, only print it.",
    "Save the position in a table of the cluster; created if it does not exist.",
)
@connection_options
def command(
    connection: ConnectionConfig,
    library: str,
    positions: str,
    table: str,
    application: str,
    from_application: str | None,
    place: CheckpointPlace | None,
) -> None:
    """Continue following a table from where scylla-cdc-go or scylla-cdc-rust stopped.

    KS.POSITIONS is the table in which the library stored its positions, and KS.TABLE is the table
    that the library followed. Stop the old reader first. All changes from the position on are
    delivered, even changes that the old reader has handled in streams that were ahead of others.

    The position is saved for a consumer or tail without shards. To start several shards, or
    replicate, pass the printed time as --from or start. KS.POSITIONS must be in the cluster of
    KS.TABLE.
    """
    with cli_errors(), closing(Connection(connection, ReadConfig())) as queries:
        names = TableName.parse(positions), TableName.parse(table)
        base = SchemaSource(queries).log_schema(names[1]).base
        stored = _LIBRARIES[library](queries, *names, from_application or application)
        position = stored.earliest()
        click.echo(f"position: {format_timestamp(position)} ({position // 1_000} ms since 1970)")
        if place is None:
            return
        ttls = TtlHistory().updated(base, ClusterClock(queries).now(), position)
        checkpoint = Checkpoint(position, table_id=base.id, ttls=ttls)
        with closing(place.open(connection)) as store:
            _save(store, CheckpointName(application, names[1]), checkpoint, place)


def _save(
    store: CheckpointStore, name: CheckpointName, checkpoint: Checkpoint, place: CheckpointPlace
) -> None:
    if store.load(name) is not None:
        raise Misuse(
            f"{place} has a position of application {name.application!r} in {name.table} already: "
            "give another --application, or delete that position"
        )
    store.save(name, checkpoint)
    click.echo(f"saved in {place} for application {name.application!r}")
