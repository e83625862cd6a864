"""How far a table's log is delivered, as a value that is stored and resumed from.

The position alone says it while windows are whole: every row written before it has been
delivered and acknowledged. Inside the window that is being read, marks say which rows of a
stream are acknowledged already, so that resuming repeats none of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from cdc_reader import timeuuid
from cdc_reader.ids import StreamId, TableName


@frozen(order=False)
class RowKey:
    """A row's place in its stream: the 16 bytes of `cdc$time`, and `cdc$batch_seq_no`.

    Keys compare as the server orders the rows of a stream.
    """

    time: bytes = field(repr=lambda raw: raw.hex())
    seq: int

    @property
    def micros(self) -> int:
        """The write time, in µs since 1970."""
        return timeuuid.micros(self.time)

    @property
    def order(self) -> tuple[tuple[int, bytes], int]:
        return timeuuid.order_key(self.time), self.seq

    def __lt__(self, other: RowKey) -> bool:
        return self.order < other.order

    def __le__(self, other: RowKey) -> bool:
        return self.order <= other.order


LAST_KEY = RowKey(bytes.fromhex("ffffffffffff1fff7f7f7f7f7f7f7f7f"), (1 << 31) - 1)
"""Behind every row."""


@frozen
class Mark:
    """What is acknowledged of one stream's rows from the position on.

    All rows up to and with `upto`, and the single `rows` besides. Only a reader that waits
    for rows to settle may say `upto`: behind a row read at once, others may still arrive.
    """

    upto: RowKey | None = None
    rows: frozenset[RowKey] = frozenset()

    def __contains__(self, key: RowKey) -> bool:
        return key in self.rows or (self.upto is not None and key <= self.upto)

    def reaches(self, position: int) -> bool:
        """Whether it names rows written at `position` (µs) or later; else it is void."""
        keys = self.rows if self.upto is None else (*self.rows, self.upto)
        return any(key.micros >= position for key in keys)


@frozen
class Checkpoint:
    """How far a table's log has been acknowledged; all times in µs since 1970.

    Every row written before `position` is; of later ones, those that `marks` name. The
    `generation` is the newest that was known then: one that turns up afterwards and began
    before the position is still to be read from its beginning. Rows that arrived before
    `swept`, by the reader's clock, have been looked for even behind the position; None if
    nothing is looked for there.
    """

    position: int
    generation: int | None = None
    marks: Mapping[StreamId, Mark] = field(factory=dict)
    swept: int | None = None


@frozen
class CheckpointName:
    """Whose checkpoint it is: an application's, of a table, or of one of its shards (``1/4``)."""

    application: str
    table: TableName
    shard: str = "1/1"
