"""Reads generations from the cluster's tables: for vnodes, for tablets, and for ScyllaDB 4.3.

Each kind has its own `GenerationSource`. `TableGenerations` determines a table's kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from functools import cached_property, partial
from itertools import chain, count, pairwise
from typing import Protocol, Self
from uuid import UUID

import pyarrow as pa
from attrs import evolve

from cdc_reader._log import get_logger
from cdc_reader._time import BEGINNING, FOREVER, Micros
from cdc_reader.cluster.queries import Asking, Queries, Query
from cdc_reader.cluster.schema import dropped, uses_tablets
from cdc_reader.cql import timeuuid
from cdc_reader.cql.names import TableName, quoted
from cdc_reader.cql.schema import STREAM_ID
from cdc_reader.errors import DecodeError, QueryRefusedError, TransientError, UnsupportedTableError
from cdc_reader.reading.ports import GenerationSource
from cdc_reader.streams.generation import StreamGroup
from cdc_reader.streams.shard import MAX_TOKEN
from cdc_reader.streams.stream import StreamId

log = get_logger(__name__)

_VNODE_TIMESTAMPS = (
    "SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key = 'timestamps'"
)
_VNODE_STREAMS = (
    "SELECT range_end, streams FROM system_distributed.cdc_streams_descriptions_v2 WHERE time = ?"
)
_VNODE_DESCRIBED = "SELECT DISTINCT time FROM system_distributed.cdc_streams_descriptions_v2"

_TABLET_TIMESTAMPS = (
    "SELECT timestamp FROM system.cdc_timestamps WHERE keyspace_name = ? AND table_name = ?"
)
_TABLET_STREAMS = (
    "SELECT stream_id FROM system.cdc_streams WHERE keyspace_name = ? AND table_name = ? "
    "AND timestamp = ? AND stream_state = 0"
)

_SCYLLA_43_TIMESTAMPS = "SELECT DISTINCT time FROM system_distributed.cdc_streams_descriptions"
_SCYLLA_43_STREAMS = (
    "SELECT streams FROM system_distributed.cdc_streams_descriptions WHERE time = ?"
)
_REWRITTEN = "SELECT key FROM system.cdc_local WHERE key = 'rewritten'"

_TABLE = "SELECT id FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?"
_NEWER = "system_distributed", "cdc_generation_timestamps"
_SCYLLA_43 = "system_distributed", "cdc_streams_descriptions"

_ALONE = 16
"""The queries at ONE to the only node of a cluster, before QUORUM is tried again."""

_FIRST_SET = 10_000_000
"""The first set begins within this time (µs) of the log's creation, and all others later."""


class GenerationKind(StrEnum):
    """Which tables describe the generations. The table of ScyllaDB 4.3 has no token ranges."""

    VNODES = "vnodes"
    TABLETS = "tablets"
    SCYLLA_43 = "4.3"


class DistributedTables:
    """Reads `system_distributed` at the consistency level at which the server writes it.

    The level is QUORUM, or ONE in a cluster of one node. There, QUORUM is unavailable, because the
    tables have three replicas, and the node knows no other. Only the answer to QUORUM shows this: a
    node that joins may not be known to all others yet.
    """

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    def batches(self, cql: str, *values: object) -> Iterator[pa.RecordBatch]:
        quorum = Query(cql, values, consistency="QUORUM")
        if len(self._queries.nodes()) > 1:
            return self._queries.batches(quorum)
        if self._queries.at_one == 0:
            return iter(self._queries.from_one_node(partial(self._of_quorum, quorum)))
        self._queries.at_one -= 1
        return self._queries.batches(evolve(quorum, consistency="ONE"))

    def _of_quorum(self, query: Query, node: Queries) -> Sequence[pa.RecordBatch]:
        """Return the answer of a quorum or, if there is none, of the cluster's only node."""
        try:
            return [*node.batches(query)]
        except TransientError:
            if node.rows("SELECT peer FROM system.peers"):
                raise
        found = [*node.batches(evolve(query, consistency="ONE"))]
        self._queries.at_one = _ALONE
        return found


def starts(batches: Iterable[pa.RecordBatch]) -> list[int]:
    """Convert the first column, timestamps in milliseconds, to µs since 1970."""
    millis = (batch.column(0).cast(pa.int64()).to_pylist() for batch in batches)
    return [each * 1_000 for each in chain.from_iterable(millis)]


def stream_ids(blobs: pa.Array) -> list[StreamId]:
    """Return the streams with these ids; raise DecodeError for an invalid id."""
    try:
        return list(map(StreamId, blobs.to_pylist()))
    except ValueError as error:
        raise DecodeError(str(error)) from None


def stream_lists(sets: pa.Array) -> list[tuple[StreamId, ...]]:
    """Return the streams of each set in wire order, which is the order of the shards.

    A large cluster has millions of streams, so all ids are converted from Arrow in one call.
    """
    streams, edges = stream_ids(sets.values), sets.offsets.to_pylist()
    return [tuple(streams[start:end]) for start, end in pairwise(edges)]


def own_groups(streams: Sequence[StreamId]) -> list[StreamGroup]:
    """Make one group for each stream; the end of the group's range is the stream's token."""
    return [StreamGroup(stream.token, (stream,)) for stream in streams]


class ReplicatedGenerations(Asking):
    """Generations in replicated tables, of which each node gives the same answer."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    @property
    def _tables(self) -> DistributedTables:
        return DistributedTables(self._queries)


class VnodeGenerations(ReplicatedGenerations):
    """The `GenerationSource` over the tables of ScyllaDB 4.4 and later.

    The server writes the streams first, then the timestamp. The tables are read at the consistency
    level of these writes, so once a timestamp is visible, its streams are visible as well.
    """

    kind = GenerationKind.VNODES

    def timestamps(self, since: Micros | None = None, *, of_all: bool = True) -> Sequence[Micros]:
        """See `GenerationSource.timestamps`; the tables of a connection share the answer."""
        del of_all
        return self._queries.answer("generations", since, self._timestamps)

    def _timestamps(self) -> Sequence[Micros]:
        try:
            return starts(self._tables.batches(_VNODE_TIMESTAMPS))
        except QueryRefusedError as error:
            raise UnsupportedTableError(
                f"{error}; expected the generation tables of ScyllaDB 4.4 or later"
            ) from error

    def groups(self, start: Micros) -> Sequence[StreamGroup]:
        """Return the stream groups of the generation that starts at `start` µs."""
        return tuple(
            StreamGroup(range_end, streams)
            for batch in self._tables.batches(_VNODE_STREAMS, start // 1_000)
            for range_end, streams in zip(
                batch.column("range_end").to_pylist(),
                stream_lists(batch.column("streams")),
                strict=True,
            )
        )

    def unpublished(self, since: Micros | None = None) -> Sequence[Micros]:
        """Return the starts, in µs, of generations that are stored but not yet announced.

        The tables of a connection share the answer.

        Scans the partition keys of a small table: one row for each generation that the cluster ever
        had, because the server removes none. No streams are read, so a generation that is only
        partly stored counts too. The stored generations are read before the timestamps, so a
        generation announced in between does not count as unpublished.
        """
        return self._queries.answer("unpublished", since, self._unpublished)

    def _unpublished(self) -> Sequence[Micros]:
        described = starts(self._tables.batches(_VNODE_DESCRIBED))
        return sorted(set(described) - set(self.timestamps()))


class TabletGenerations(Asking):
    """The `GenerationSource` of a table that uses tablets, in ScyllaDB 2025.4 and later.

    Queries use consistency ONE, and each node answers from its local tables. A node that lags may
    not have the newest set of streams yet.

    The server removes sets that are older than the log's TTL. If the TTL was lowered, the log may
    still have rows in their streams. All streams that have rows therefore count as one set, which
    begins before the log was created, and ends with the first set that the server names.
    """

    kind = GenerationKind.TABLETS

    def __init__(self, queries: Queries, name: TableName) -> None:
        self._queries = queries
        self._name = name
        self._key = name.keyspace, name.name
        self._turns = count()
        self._timestamps = Query(_TABLET_TIMESTAMPS, self._key, consistency="ONE")

    def timestamps(self, since: Micros | None = None, *, of_all: bool = True) -> Sequence[Micros]:
        """Return the starts, in µs, of all sets of streams; see `GenerationSource.timestamps`.

        Nodes are asked in turn, so that a set of which a node has not heard is found by the next
        call.
        """
        del since  # each table has its own sets
        if of_all:
            answers = self._queries.from_all_nodes(self._timestamps).values()
            found = {start for batches in answers for start in starts(batches)}
        else:
            found = {*self._queries.from_one_node(self._starts, next(self._turns))}
        is_whole = min(found, default=BEGINNING) <= self._created + _FIRST_SET
        return sorted(found if is_whole else {self._created - _FIRST_SET, *found})

    def groups(self, start: Micros) -> Sequence[StreamGroup]:
        """Return the streams in force from `start` µs on.

        If a node does not have the set yet, another is asked. If the server has removed the set,
        the streams are those that have rows. Raises TableNotFoundError if the table was dropped.
        """
        groups = self._queries.from_one_node(partial(self._groups, start))
        return groups or [StreamGroup(MAX_TOKEN, tuple(self._streams_with_rows()))]

    def unpublished(self, since: Micros | None = None) -> Sequence[Micros]:
        """Return an empty sequence, because a set and its streams become visible together."""
        del since
        return ()

    def _starts(self, node: Queries) -> list[Micros]:
        return starts(node.batches(self._timestamps))

    def _groups(self, start: Micros, node: Queries) -> Sequence[StreamGroup]:
        query = Query(_TABLET_STREAMS, (*self._key, start // 1_000), consistency="ONE")
        groups = [
            group
            for batch in node.batches(query)
            for group in own_groups(stream_ids(batch.column("stream_id")))
        ]
        if not groups:
            self._check_forgotten(start, node)
        return groups

    @cached_property
    def _created(self) -> Micros:
        """The time at which the log was created; later than any set's start if it is unknown."""
        rows = self._queries.rows(_TABLE, self._name.keyspace, self._name.log.name)
        created = timeuuid.created(UUID(rows[0]["id"])) if rows else None
        return FOREVER - _FIRST_SET if created is None else created

    def _streams_with_rows(self) -> Iterator[StreamId]:
        """Yield the streams of the log's partitions."""
        cql = f"SELECT DISTINCT {quoted(STREAM_ID)} FROM {self._name.log.cql}"  # noqa: S608 - quoted
        for batch in self._queries.batches(
            Query(cql, doing=f"listing the streams of {self._name}")
        ):
            yield from stream_ids(batch.column(0))

    def _check_forgotten(self, start: Micros, node: Queries) -> None:
        """Raise TransientError if the node has no streams because it has not received them yet."""
        known = self._starts(node)
        if known and start < min(known):
            return
        if not known and not node.rows(_TABLE, *self._key):
            raise dropped(self._name)
        raise TransientError(
            f"a node does not yet know the streams of {self._name} from {start // 1_000} ms on, "
            "though another node announced them; check that all nodes agree on the schema"
        )


class Scylla43Generations(ReplicatedGenerations):
    """The `GenerationSource` for ScyllaDB 4.3, whose table has one row for each generation.

    The table does not contain the ends of token ranges, so each stream is a separate group.
    """

    kind = GenerationKind.SCYLLA_43

    def timestamps(self, since: Micros | None = None, *, of_all: bool = True) -> Sequence[Micros]:
        """Return the starts, in µs, of all generations visible now."""
        del since, of_all
        return starts(self._tables.batches(_SCYLLA_43_TIMESTAMPS))

    def groups(self, start: Micros) -> Sequence[StreamGroup]:
        """Return the streams of the generation that starts at `start` µs."""
        return [
            group
            for batch in self._tables.batches(_SCYLLA_43_STREAMS, start // 1_000)
            for streams in stream_lists(batch.column("streams"))
            for group in own_groups(streams)
        ]

    def unpublished(self, since: Micros | None = None) -> Sequence[Micros]:
        """Return an empty sequence, because one row contains both the timestamp and the streams."""
        del since
        return ()


class UpgradedGenerations(ReplicatedGenerations):
    """The `GenerationSource` of a cluster that has, or had, the generation table of ScyllaDB 4.3.

    An upgraded cluster copies its generations to the newer tables, with their original starts, and
    then sets a mark in `system.cdc_local`. When the mark is set, only the newer tables are read.
    ScyllaDB 2026.2 and later do not set the mark, and a node may never have had it. Without the
    mark, generations are read from both the old and the newer tables.
    """

    def __init__(self, queries: Queries) -> None:
        super().__init__(queries)
        self._in_newer: frozenset[int] = frozenset()
        self._has_newer = False
        self._is_rewritten = False

    @property
    def kind(self) -> GenerationKind:
        """``vnodes`` if the newer tables, which have token ranges, are complete; else ``4.3``."""
        self._follow_upgrade()
        starts = () if self._is_rewritten else self.timestamps()
        return self._newer.kind if self._in_newer.issuperset(starts) else self._older.kind

    def timestamps(self, since: Micros | None = None, *, of_all: bool = True) -> Sequence[Micros]:
        """Return the starts, in µs, of all generations visible now."""
        del of_all
        self._follow_upgrade()
        if self._is_rewritten:
            return self._newer.timestamps(since)
        self._has_newer = self._has_newer or self._finds_newer()
        self._in_newer = frozenset(self._newer.timestamps() if self._has_newer else ())
        return sorted(self._in_newer.union(self._older.timestamps()))

    def groups(self, start: Micros) -> Sequence[StreamGroup]:
        """Return the streams of the generation that starts at `start` µs."""
        if self._is_newer(start):
            return self._newer.groups(start)
        if groups := self._older.groups(start):
            return groups
        self.timestamps()  # finds out whether the newer tables have the generation
        return self._newer.groups(start) if self._is_newer(start) else ()

    @property
    def _older(self) -> Scylla43Generations:
        return Scylla43Generations(self._queries)

    @property
    def _newer(self) -> VnodeGenerations:
        return VnodeGenerations(self._queries)

    def _is_newer(self, start: Micros) -> bool:
        return self._is_rewritten or start in self._in_newer

    def unpublished(self, since: Micros | None = None) -> Sequence[Micros]:
        """Return the starts, in µs, of unannounced generations in the newer tables."""
        if not self._is_rewritten and not self._in_newer:
            self.timestamps()  # finds out whether the newer tables are in use
        is_newer = self._is_rewritten or self._in_newer
        return self._newer.unpublished(since) if is_newer else ()

    def _follow_upgrade(self) -> None:
        if not self._is_rewritten and self._finds_rewritten():
            log.info("generations_rewritten")
            self._is_rewritten = True

    def _finds_newer(self) -> bool:
        """Return whether any node has the newer tables, of which a node that lags knows nothing."""
        answers = self._queries.from_all_nodes(Query(_TABLE, _NEWER, consistency="ONE"))
        return any(batch.num_rows for batches in answers.values() for batch in batches)

    def _finds_rewritten(self) -> bool:
        try:
            return bool(self._queries.rows(_REWRITTEN))
        except QueryRefusedError:
            return True  # newer servers no longer have this table


class KnownSource(GenerationSource, Protocol):
    """A `GenerationSource` that reports which kind of tables it reads."""

    @property
    def kind(self) -> GenerationKind:
        """The kind of tables that are read now."""
        ...

    def over(self, queries: Queries) -> Self:
        """See `Asking.over`."""
        ...


class TableGenerations(Asking):
    """The `GenerationSource` of any table; its kind is determined on first use."""

    def __init__(self, queries: Queries, name: TableName) -> None:
        self._queries = queries
        self._name = name

    def timestamps(self, since: Micros | None = None, *, of_all: bool = True) -> Sequence[Micros]:
        return self.source.timestamps(since, of_all=of_all)

    def groups(self, start: Micros) -> Sequence[StreamGroup]:
        return self.source.groups(start)

    def unpublished(self, since: Micros | None = None) -> Sequence[Micros]:
        return self.source.unpublished(since)

    @property
    def source(self) -> KnownSource:
        """The source that fits the table's keyspace and the server."""
        return self._source.over(self._queries)

    @cached_property
    def _source(self) -> KnownSource:
        if uses_tablets(self._queries, self._name.keyspace):
            return TabletGenerations(self._queries, self._name)
        return cluster_generations(self._queries)


def cluster_generations(queries: Queries) -> KnownSource:
    """Return the source of the generations that all tables with vnodes share."""
    if queries.rows(_TABLE, *_SCYLLA_43):
        return UpgradedGenerations(queries)
    return VnodeGenerations(queries)
