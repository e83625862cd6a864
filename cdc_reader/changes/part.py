"""`Part`: a delta row of the log, or cells of a snapshot's row with the same TTL and write time."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

from attrs import frozen

from cdc_reader._time import Micros
from cdc_reader.changes.columns import LogPage
from cdc_reader.changes.delta import Assigned, CollectionDelta, Delta
from cdc_reader.cql.schema import Operation
from cdc_reader.cql.values import FrozenDict
from cdc_reader.reading.ports import ttl_of, written_of


@frozen
class Part:
    """One delta row of the log.

    A write has several parts if its cells have different TTLs, or if it both inserts a row and adds
    to the row's collections. `seq` is the log row's `cdc$batch_seq_no`. `ttl`, in seconds, applies
    to all live cells of the part and to its row marker; it is None if they do not expire. In a
    snapshot, `timestamp` is the write time of the part's cells, in µs, if it is known; for other
    changes, see `Change.timestamp`.
    """

    operation: Operation
    seq: int
    ttl: int | None
    deltas: Mapping[str, Delta]
    timestamp: Micros | None = None

    @property
    def is_live(self) -> bool:
        """Whether the part wrote anything that can have a TTL."""
        return self.operation is Operation.INSERT or any(map(_is_live, self.deltas.values()))


def _is_live(delta: Delta) -> bool:
    return isinstance(delta, Assigned) or (isinstance(delta, CollectionDelta) and bool(delta.added))


_Written = tuple[int | None, Micros | None]
"""The TTL and the write time of cells; each is None if it does not exist or is unknown."""


def snapshot_parts(page: LogPage, row: int, deltas: Mapping[str, Delta]) -> tuple[Part, ...]:
    """Return the parts of a snapshot's row.

    The first part is an insert of the cells that expire last, and the other parts are updates. The
    server returns neither TTLs nor write times for row markers and elements of collections. The row
    marker gets the TTL and the write time of the first part. A part of collections, or of a row
    marker alone, has neither, and counts as one that does not expire.
    """
    alike: defaultdict[_Written, dict[str, Delta]] = defaultdict(dict)
    for name, delta in deltas.items():
        alike[page[ttl_of(name)][row], page[written_of(name)][row]][name] = delta
    lasting = sorted(alike, key=_lasting, reverse=True) or [(None, None)]
    return tuple(
        Part(
            Operation.UPDATE if number else Operation.INSERT,
            number,
            ttl,
            FrozenDict(alike.get((ttl, timestamp), {})),
            timestamp,
        )
        for number, (ttl, timestamp) in enumerate(lasting)
    )


def _lasting(written: _Written) -> tuple[float, float]:
    """Return a sort key that orders cells by remaining TTL, then by write time."""
    ttl, timestamp = written
    return math.inf if ttl is None else ttl, -math.inf if timestamp is None else timestamp
