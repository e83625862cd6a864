"""Decides what is read next, for a follower in Python and for a micro-batch of Spark.

`advance` is pure: a step depends only on the reader's cursor, on what it sees of the cluster, and
on its limits. (Eager delivery also polls rows that have not settled, without moving the position.)

Rows and generations have had the confidence window to become visible: the clock was read first,
then the generations, and the log is read last. No barrier between generations is needed, because a
row's timestamp determines which generation's streams contain the row.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from attrs import evolve, field, frozen

from cdc_reader._log import get_logger
from cdc_reader._time import BEGINNING, FOREVER, Micros, format_timestamp
from cdc_reader.cql.names import TableName
from cdc_reader.reading import tuning
from cdc_reader.reading.cursor import Checkpoint, KnownGenerations
from cdc_reader.reading.expiry import TtlHistory
from cdc_reader.reading.ports import LogTable
from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.window import Window

log = get_logger(__name__)

_LEAD = 60_000_000
"""µs by which a write time may be ahead of the clock.

The server accepts timestamps up to 5 s ahead of its clock, and the nodes' clocks differ."""


def settled_before(now: Micros, confidence: int) -> Micros:
    """Return the write time before which rows have settled: `confidence` µs before `now`."""
    return now - confidence


def written_before(now: Micros) -> Micros:
    """Return a time later than the write time of any row written by `now`, settled or not."""
    return now + _LEAD


@frozen
class View:
    """What a reader sees of its log's generations as of `moment`, in µs.

    `visible` contains all generations seen so far. No reader may read past `unannounced`: the start
    of the first generation whose streams are stored, but which is not announced yet.
    """

    moment: Micros
    visible: Timeline
    unannounced: Micros = FOREVER


@frozen
class Limits:
    """How far a step may reach; all values are in µs.

    The window of a step ends at `end` at the latest, and at least the confidence window before the
    present. It is at most `longest` long, and if it does not end at `end`, at least `shortest`. If
    late rows are delivered, `reach` is the distance from a generation's time in force at which its
    streams are searched for strays. With `by_generation`, the time before the first generation is a
    window of its own and, if there is a `reach`, no window crosses into another generation: strays
    are delivered after the window's other rows, and each stream must be delivered in order.
    """

    confidence: int
    end: Micros = FOREVER
    longest: int = FOREVER
    shortest: int = 1
    reach: int = 0
    by_generation: bool = False

    def settled(self, now: Micros) -> Micros:
        """Return the write time up to which the log may be read at `now`."""
        return min(settled_before(now, self.confidence), self.end)

    def is_due(self, position: Micros, settled: Micros) -> bool:
        """Return whether a window from `position` to `settled` is long enough for a step."""
        return settled > position and (settled >= self.end or settled - position >= self.shortest)


@frozen
class Step:
    """What lies between two cursors.

    `window` adjoins the position, and is empty if too little has settled. `missed` maps the start
    of each generation that was announced late to its unread window behind the position. `fresh`
    contains the starts of all new generations whose streams may contain rows from before the
    position: those, and with late rows, also those that begin soon. `generations` are the
    generations known after the step, and `timeline` contains the older ones as well.
    """

    window: Window
    generations: KnownGenerations
    timeline: Timeline
    missed: Mapping[Micros, Window] = field(factory=dict)
    fresh: frozenset[Micros] = frozenset()

    @property
    def first(self) -> Micros:
        """The earliest write time that the step reads."""
        return min([self.window.start, *(window.start for window in self.missed.values())])

    def behind(self, cursor: Checkpoint, reach: int) -> Window:
        """Return the window behind the position in which new generations may have rows."""
        first = min([cursor.position, *self.fresh]) - reach
        return Window(max(first, cursor.first), cursor.position)

    def until(self, end: Micros) -> Step:
        """Return the step with a window that ends at `end` at the latest."""
        return evolve(self, window=Window(self.window.start, min(self.window.end, end)))


def advance(cursor: Checkpoint, view: View, limits: Limits) -> Step:
    """Return the step that follows `cursor`.

    A generation that became visible when the position was past its start is read from its start, or
    from the first write time that the reader delivers. Its rows have not been delivered, except
    those that the server logged in streams of two generations: the reader leaves out a row whose
    other copy it has delivered (`KeyReader.delivered`). Therefore no row is lost or repeated if a
    generation is announced late.
    """
    position, kept_since = cursor.position, cursor.ttls.oldest_kept(view.moment)
    known = known_at(cursor, view.visible, kept_since)
    timeline = Timeline(known.with_older(view.visible.starts))
    return Step(
        _window(position, view, timeline, limits),
        known,
        timeline,
        known.missed(cursor.generations, cursor.first, position),
        known.new(cursor.generations, position + limits.reach),
    )


def known_at(cursor: Checkpoint, visible: Timeline, kept_since: Micros) -> KnownGenerations:
    """Return the generations known to a reader at `cursor` that sees those of `visible`.

    Rows written before `kept_since` (µs) no longer exist.
    """
    known = cursor.generations or KnownGenerations(cursor.position, ())
    return known.seeing(visible.starts, kept_since)


def _window(position: Micros, view: View, timeline: Timeline, limits: Limits) -> Window:
    """Return the next window, which settles before it is read; it may be empty."""
    settled = limits.settled(view.moment)
    if not limits.is_due(position, settled):
        return Window(position, position)
    settled = max(position, min(settled, view.unannounced))
    if limits.by_generation:
        first, *later = timeline.starts
        if position < first:
            return Window(position, min(first, settled))
        if limits.reach:
            settled = min([settled, *(start for start in later if start > position)])
    return Window(position, min(position + limits.longest, settled))


def begin_following(table: LogTable, now: Micros, start: Micros) -> Checkpoint:
    """Return the checkpoint, as of `now` (µs), from which to follow the log from `start` (µs).

    The checkpoint contains the table's id and TTL. If it is saved before anything is read, a later
    run can detect that the table was recreated, or that rows expired in the meantime. To make this
    possible, a start at BEGINNING is replaced by the oldest position worth reading from, if there
    is a generation already.
    """
    base = table.schema().base
    ttls = TtlHistory().updated(base, now, start)
    starts = table.generations.timestamps() if start == BEGINNING else ()
    if starts:
        start = oldest(starts, ttls, now)
    return Checkpoint(start, table_id=base.id, ttls=ttls, table=base.name)


def oldest(starts: Collection[Micros], ttls: TtlHistory, now: Micros) -> Micros:
    """Return the earliest position worth reading from; no rows exist before it."""
    return max(min(starts), ttls.oldest_kept(now))


def is_search_due(searched_at: Micros, now: Micros, final: Micros = FOREVER) -> bool:
    """Return whether to search for late rows at `now`, after a search at `searched_at`.

    A reader that ends when it has read the rows available at `final` searches once more.
    """
    return now >= searched_at + tuning.LATE_INTERVAL if final == FOREVER else searched_at < final


def warn_of_future(start: Micros, now: Micros, table: TableName) -> None:
    """Warn if `start` (µs) is later than any write time; its year or a clock may be wrong."""
    if written_before(now) < start < FOREVER:
        log.warning("start_in_the_future", table=str(table), start=format_timestamp(start))
