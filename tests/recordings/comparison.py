"""Compares two CDC logs without regard to random values.

Stream ids, `cdc$time` and list element ids are random or depend on the clock, so no two servers
write the same bytes. `comparable` replaces each of these values with a number, in order of
appearance. Logs of the same writes are then equal, cell by cell.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence

from attrs import field, frozen

from cdc_reader.testing.embedded.codec.order import read_fields

Cells = Sequence[bytes | None]
ComparableCell = bytes | str | list[str] | None


@frozen
class Result:
    """The raw result of a query: (name, CQL type) per column, serialized cells per row."""

    columns: tuple[tuple[str, str], ...]
    rows: Sequence[Cells]

    @classmethod
    def from_recording(cls, recorded: Mapping[str, list[list[str | None]]]) -> Result:
        """Return a result from a recording, in which cells are in hex."""
        return cls(
            tuple((str(name), str(cql_type)) for name, cql_type in recorded["columns"]),
            [[None if c is None else bytes.fromhex(c) for c in row] for row in recorded["rows"]],
        )

    def recording(self) -> dict[str, list[list[str | None]]]:
        """Return the result in the format of a recording."""
        return {
            "columns": [list(column) for column in self.columns],
            "rows": [[None if c is None else c.hex() for c in row] for row in self.rows],
        }

    def column(self, name: str) -> int:
        """Return the index of a column, or raise ValueError if there is none."""
        return [column for column, _ in self.columns].index(name)


def comparable(log: Result, partition_key: Sequence[str]) -> list[dict[str, ComparableCell]]:
    """Return the rows of a log, with random values replaced by numbers in order of appearance.

    Rows are grouped by the base table's partition key, because the stream of a key depends on the
    cluster. The rows of each key are in order of time. Records with the same write timestamp have
    random ids, so they are ordered by their other contents.
    """
    numbering = _Numbering(log)
    key = [log.column(name) for name in partition_key]
    by_key: dict[tuple[bytes | None, ...], list[Cells]] = {}
    for row in log.rows:
        by_key.setdefault(tuple(row[i] for i in key), []).append(row)
    return [
        row for k in sorted(by_key, key=_nulls_first) for row in numbering.of_partition(by_key[k])
    ]


def differences(
    expected: Sequence[Mapping[str, ComparableCell]], actual: Sequence[Mapping[str, ComparableCell]]
) -> Iterator[str]:
    """Yield a line for each difference between two comparable logs."""
    if len(expected) != len(actual):
        yield f"log rows: expected {len(expected)}, found {len(actual)}"
    for number, (wanted, found) in enumerate(zip(expected, actual, strict=False)):
        for name in sorted(wanted.keys() | found.keys()):
            if wanted.get(name) != found.get(name):
                yield (
                    f"log row {number}, {name}: expected {wanted.get(name)!r}, "
                    f"found {found.get(name)!r}"
                )


@frozen
class _Numbering:
    """Numbers the values of a log's random columns."""

    log: Result
    names: list[str] = field(init=False)
    stream: int = field(init=False)
    time: int = field(init=False)
    elements: frozenset[int] = field(init=False)

    def __attrs_post_init__(self) -> None:
        columns = self.log.columns
        elements = (i for i, (_, t) in enumerate(columns) if "timeuuid" in t and "<" in t)
        object.__setattr__(self, "names", [name for name, _ in columns])
        object.__setattr__(self, "stream", self.log.column("cdc$stream_id"))
        object.__setattr__(self, "time", self.log.column("cdc$time"))
        object.__setattr__(self, "elements", frozenset(elements))

    def of_partition(self, rows: Iterable[Cells]) -> Iterator[dict[str, ComparableCell]]:
        records: dict[tuple[bytes | None, bytes], list[Cells]] = {}
        for row in rows:
            records.setdefault((row[self.stream], row[self.time] or b""), []).append(row)
        streams: dict[bytes | None, str] = {}
        times: dict[bytes, str] = {}
        seen: dict[bytes | None, str] = {}
        for stream, time in sorted(records, key=lambda r: (_ticks(r[1]), self._stable(records[r]))):
            for row in records[stream, time]:
                cells: list[ComparableCell] = [
                    _number_elements(cell, seen) if i in self.elements and cell else cell
                    for i, cell in enumerate(row)
                ]
                cells[self.stream] = streams.setdefault(stream, f"S{len(streams)}")
                cells[self.time] = times.setdefault(time, f"T{len(times)}")
                yield dict(zip(self.names, cells, strict=True))

    def _stable(self, rows: Iterable[Cells]) -> list[list[tuple[bool, bytes]]]:
        volatile = {self.stream, self.time, *self.elements}
        return [
            [(cell is not None, cell or b"") for i, cell in enumerate(row) if i not in volatile]
            for row in rows
        ]


def _number_elements(collection: bytes, seen: dict[bytes | None, str]) -> list[str]:
    """Return the entries of a collection keyed by timeuuid, with each id replaced by its number."""
    count = int.from_bytes(collection[:4], "big")
    cells = read_fields(collection[4:])
    width = len(cells) // count if count else 1
    entries: list[str] = []
    for start in range(0, len(cells), width):
        number = seen.setdefault(cells[start], f"L{len(seen)}")
        values = (cell and cell.hex() for cell in cells[start + 1 : start + width])
        entries.append(f"{number}={','.join(map(str, values))}")
    return entries


def _ticks(time: bytes) -> int:
    return uuid.UUID(bytes=time).time


def _nulls_first(key: Cells) -> list[tuple[bool, bytes]]:
    return [(cell is not None, cell or b"") for cell in key]
