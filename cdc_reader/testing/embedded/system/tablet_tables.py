"""The tables `system.cdc_*`, which list the streams of each table that uses tablets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from attrs import frozen

from cdc_reader.testing.embedded.codec.token import cdc_token
from cdc_reader.testing.embedded.system.virtual import PartitionKey, Values, VirtualTable
from cdc_reader.testing.embedded.topology.tablets import StreamHistory

CURRENT, CLOSED, OPENED = range(3)


@frozen
class TabletTables:
    """The virtual tables that describe the streams of tables that use tablets.

    `cdc_timestamps` and `cdc_streams` are for clients; their key is the name of the base table.
    `cdc_streams_state` (the oldest set) and `cdc_streams_history` (the changes since) are internal;
    their key is the id of the log. `histories` returns the stream histories of all logs.
    """

    histories: Callable[[], Iterable[StreamHistory]]

    def sources(self) -> Mapping[tuple[str, str], VirtualTable]:
        """Return the sources by (keyspace, table)."""
        filled: dict[str, Callable[[StreamHistory], Iterable[Values]]] = {
            "cdc_streams": _streams,
            "cdc_streams_history": _history,
            "cdc_streams_state": _state,
            "cdc_timestamps": _timestamps,
        }
        return {("system", name): self._table(rows) for name, rows in filled.items()}

    def _table(self, rows: Callable[[StreamHistory], Iterable[Values]]) -> VirtualTable:
        def all_rows(_: PartitionKey | None) -> Iterator[Values]:
            for history in self.histories():
                yield from rows(history)

        return VirtualTable(all_rows)


def _timestamps(history: StreamHistory) -> Iterator[Values]:
    for each in history.sets:
        yield {**_names(history), "timestamp": each.timestamp}


def _streams(history: StreamHistory) -> Iterator[Values]:
    for each, closed, opened in history.changes():
        for state, streams in ((CURRENT, each.streams), (CLOSED, closed), (OPENED, opened)):
            for stream in streams:
                yield {
                    **_names(history),
                    "timestamp": each.timestamp,
                    "stream_state": state,
                    "stream_id": stream,
                }


def _history(history: StreamHistory) -> Iterator[Values]:
    _, *later = history.changes()
    for each, closed, opened in later:
        for state, streams in ((CLOSED, closed), (OPENED, opened)):
            for stream in streams:
                yield {
                    "table_id": history.log_id,
                    "timestamp": each.timestamp,
                    "stream_state": state,
                    "last_token": cdc_token(stream),
                    "stream_id": stream,
                }


def _state(history: StreamHistory) -> Iterator[Values]:
    oldest = history.sets[0]
    for stream in oldest.streams:
        yield {
            "table_id": history.log_id,
            "last_token": cdc_token(stream),
            "stream_id": stream,
            "timestamp": oldest.timestamp,
        }


def _names(history: StreamHistory) -> Values:
    return {"keyspace_name": history.keyspace, "table_name": history.table}
