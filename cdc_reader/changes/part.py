"""`Part`: one delta row of the log, or the cells of a snapshot's row that have one TTL."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from attrs import frozen

from cdc_reader.changes.columns import LogPage
from cdc_reader.changes.delta import CollectionDelta, Delta, Set
from cdc_reader.cql.schema import Operation
from cdc_reader.cql.values import FrozenDict
from cdc_reader.reading.ports import ttl_of


@frozen
class Part:
    """One delta row of the log.

    A write has several if its cells have different TTLs, or if it both inserts a row and adds to
    the row's collections. `seq` is the row's `cdc$batch_seq_no`. `ttl`, in seconds, applies to
    all live cells of the part and to its row marker; None if they do not expire.
    """

    operation: Operation
    seq: int
    ttl: int | None
    deltas: Mapping[str, Delta]

    @property
    def is_live(self) -> bool:
        """Whether the part wrote anything that can have a TTL."""
        return self.operation is Operation.INSERT or any(map(_is_live, self.deltas.values()))


def _is_live(delta: Delta) -> bool:
    return isinstance(delta, Set) or (isinstance(delta, CollectionDelta) and bool(delta.added))


def snapshot_parts(page: LogPage, row: int) -> tuple[Part, ...]:
    """Return the parts of a snapshot's row: first an insert of the cells that last longest.

    The server tells the TTL neither of a row's marker nor of the elements of collections. The
    marker gets the TTL of the first part, and collections have none.
    """
    by_ttl: defaultdict[int | None, dict[str, Delta]] = defaultdict(dict)
    for name, delta in page.deltas[row].items():
        by_ttl[page[ttl_of(name)][row]][name] = delta
    first = None if None in by_ttl or not by_ttl else max(filter(None, by_ttl), default=None)
    ttls = [first, *sorted(ttl for ttl in by_ttl if ttl is not None and ttl != first)]
    return tuple(
        Part(
            Operation.UPDATE if number else Operation.INSERT,
            number,
            ttl,
            FrozenDict(by_ttl.get(ttl, {})),
        )
        for number, ttl in enumerate(ttls)
    )
