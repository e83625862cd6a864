"""Which marks still say something: those that name a row at or after the position."""

from __future__ import annotations

from collections.abc import Mapping

from cdc_reader.ids import StreamId
from cdc_reader.progress import Mark


def newest(mark: Mark) -> int | None:
    """The write time, in µs, of the last row that a mark names; None if it names none."""
    times = [key.micros for key in mark.rows]
    if mark.upto is not None:
        times.append(mark.upto.micros)
    return max(times, default=None)


def living(marks: Mapping[StreamId, Mark], position: int) -> dict[StreamId, Mark]:
    """The marks without rows before the position; those that have no others left out."""
    return {
        stream: _from(mark, position) for stream, mark in marks.items() if mark.reaches(position)
    }


def _from(mark: Mark, position: int) -> Mark:
    upto = mark.upto if mark.upto is not None and mark.upto.micros >= position else None
    return Mark(upto, frozenset(key for key in mark.rows if key.micros >= position))
