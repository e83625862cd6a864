"""The write path: applies mutations of base tables together with their log rows."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from attrs import define

from cdc_reader.cql import timeuuid
from cdc_reader.cql.schema import END_OF_BATCH, OPERATION, TTL
from cdc_reader.testing.embedded.cdc.change import Record
from cdc_reader.testing.embedded.cdc.delta import TRUE, LogRow, delta_rows
from cdc_reader.testing.embedded.cdc.image import ImageState
from cdc_reader.testing.embedded.cdc.log_schema import log_name
from cdc_reader.testing.embedded.cdc.split import records
from cdc_reader.testing.embedded.profile import Profile
from cdc_reader.testing.embedded.schema.catalog import Catalog
from cdc_reader.testing.embedded.schema.table import Table
from cdc_reader.testing.embedded.storage.cell import Cell
from cdc_reader.testing.embedded.storage.database import Database
from cdc_reader.testing.embedded.storage.partition import Partition


class StreamChooser(Protocol):
    """Chooses a log's stream for a write, or rejects the write."""

    def stream_ids(self, key: tuple[bytes, ...], write_us: int, now_us: int) -> Sequence[bytes]:
        """Return the streams in which to log a write.

        `write_us` is the write's timestamp, and `now_us` is the time at which it arrives. There is
        one stream, unless a fault is injected. Raises CqlError if ScyllaDB would reject the
        timestamp.
        """


@define
class WritePath:
    """Applies mutations to the database, and logs the mutations of tables with CDC.

    `streams` returns the stream chooser of a log table, and `random_bytes` generates the random
    half of `cdc$time`.
    """

    catalog: Catalog
    database: Database
    streams: Callable[[Table], StreamChooser]
    profile: Profile = Profile()
    random_bytes: Callable[[int], bytes] = secrets.token_bytes

    def write(self, mutations: Sequence[Partition], now_us: int) -> None:
        """Apply the mutations and their log rows; apply none if a timestamp is rejected."""
        changed = [m for m in mutations if self._is_logged(m.table)]
        logged = [log for mutation in changed for log in self._log(mutation, now_us)]
        for mutation in (*mutations, *logged):
            self.database.apply(mutation)

    def _is_logged(self, base: Table) -> bool:
        return base.cdc.enabled and self.catalog.keyspace(base.keyspace).consistency is None

    def _log(self, mutation: Partition, now_us: int) -> Iterator[Partition]:
        base = mutation.table
        log = self.catalog.table(base.keyspace, log_name(base.name))
        split, streams = records(mutation), self.streams(log)
        images = self._images(mutation, now_us)
        for record in split:
            rows = list(_rows(base, record, images, is_last=record is split[-1]))
            chosen = streams.stream_ids(mutation.key, record.timestamp, now_us)
            time = timeuuid.make(record.timestamp, self._random_half()).bytes
            for stream in chosen:
                yield self._log_mutation(log, (stream, time), mutation, record, rows, now_us)

    def _images(self, mutation: Partition, now_us: int) -> ImageState | None:
        cdc = mutation.table.cdc
        if not cdc.postimage and cdc.preimage == "false":
            return None
        stored = self.database.partition(mutation.table, mutation.key)
        return ImageState.read(mutation, stored, now_us // 1_000_000, self.profile)

    def _log_mutation(
        self,
        log: Table,
        place: tuple[bytes, bytes],
        mutation: Partition,
        record: Record,
        rows: list[LogRow],
        now_us: int,
    ) -> Partition:
        base, timestamp, ttl = mutation.table, record.timestamp, mutation.table.cdc.ttl
        expiry = now_us // 1_000_000 + ttl if ttl else 0
        stream, time = place
        logged = Partition(log, (stream,))
        for number, row in enumerate(rows):
            cells = _log_cells(base, mutation.key, row)
            if number == len(rows) - 1 and self.profile.end_of_batch:
                cells[END_OF_BATCH] = TRUE
            target = logged.row((time, number.to_bytes(4, "big")))
            target.cells = {n: Cell(timestamp, v, ttl, expiry) for n, v in cells.items()}
        return logged

    def _random_half(self) -> bytes:
        half = bytearray(self.random_bytes(8))
        if self.profile.rfc_variant:
            half[0] = half[0] & 0x3F | 0x80
        return bytes(half)


def _rows(
    base: Table, record: Record, images: ImageState | None, is_last: bool
) -> Iterator[LogRow]:
    """Yield the preimages, deltas and postimages of one record."""
    if images and base.cdc.preimage != "false":
        yield from images.preimages(record)
    for change in record.changes:
        yield from delta_rows(base, change, with_values=base.cdc.delta == "full")
        # Only a postimage or a later record's preimage needs the updated state.
        if images and (base.cdc.postimage or not is_last):
            images.apply(change)
    if images and base.cdc.postimage:
        yield from images.postimages(record)


def _log_cells(base: Table, key: tuple[bytes, ...], row: LogRow) -> dict[str, bytes]:
    cells = {OPERATION: row.operation.to_bytes(1, "big", signed=True), **row.cells}
    cells.update(zip((c.name for c in base.partition_key), key, strict=True))
    if row.key is not None:
        cells.update(zip((c.name for c in base.clustering), row.key, strict=False))
    if row.ttl:
        cells[TTL] = row.ttl.to_bytes(8, "big")
    return cells
