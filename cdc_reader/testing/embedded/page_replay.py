"""Replays prepared pages with no work per row, for benchmarks of clients.

Every SELECT from a table under replay returns the same pages, starting with the first. Clients may
request pages without metadata, as for prepared statements. Each reader's position is in its paging
state, so the server stores no state per reader.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, evolve, field, frozen

from cdc_reader.decoding import parse_metadata
from cdc_reader.errors import DecodeError
from cdc_reader.testing.embedded.errors import ProtocolError
from cdc_reader.testing.embedded.protocol.body import BodyReader, int32
from cdc_reader.testing.embedded.protocol.responses import MetadataFlag
from cdc_reader.testing.embedded.query.result import EncodedPage

_STATE_MARK = b"replayed page "


def ready(body: bytes) -> EncodedPage:
    """Return the page in a RESULT's body; raise ValueError unless it contains rows and metadata."""
    try:
        metadata = parse_metadata(body)
    except DecodeError as error:
        raise ValueError(f"a page to replay: {error}") from None
    if metadata.columns is None:
        raise ValueError("a page to replay: expected metadata, as clients may ask for it")
    reader = BodyReader(body)
    _, flags, columns = reader.int32(), reader.int32(), reader.int32()
    if flags & MetadataFlag.MORE_PAGES:
        reader.nullable_bytes()
    rows = body[metadata.rows_offset :]
    described = reader.rest().removesuffix(rows)
    return EncodedPage(flags & ~MetadataFlag.MORE_PAGES, columns, described, rows)


@frozen
class Series:
    """A sequence of pages, repeated `times` times."""

    pages: tuple[EncodedPage, ...]
    times: int

    def page(self, paging_state: bytes | None) -> EncodedPage:
        """Return the page that follows this paging state; the first page for None."""
        count = len(self.pages) * self.times
        number = _number(paging_state) if paging_state else 0
        if number >= count:
            raise _invalid()
        following = None if number + 1 == count else _STATE_MARK + int32(number + 1)
        return evolve(self.pages[number % len(self.pages)], paging_state=following)


@define
class PageReplays:
    """The tables under replay, and their pages."""

    _series: dict[tuple[str, str], Series] = field(factory=dict, init=False)

    def begin(self, keyspace: str, table: str, bodies: Sequence[bytes], times: int) -> None:
        """Serve these RESULT bodies for a table; raise ValueError if they are not pages of rows."""
        if not bodies or times < 1:
            raise ValueError("a replay: expected at least one page, at least once")
        # Equal pages are stored once, so a benchmark with many pages needs little memory.
        made = {body: ready(body) for body in set(bodies)}
        self._series[keyspace, table] = Series(tuple(made[body] for body in bodies), times)

    def end(self, keyspace: str, table: str) -> None:
        """Stop the replay: SELECTs read the table again."""
        self._series.pop((keyspace, table), None)

    def page(self, keyspace: str, table: str, paging_state: bytes | None) -> EncodedPage | None:
        """Return the page to send; None if the table is not under replay."""
        series = self._series.get((keyspace, table))
        return None if series is None else series.page(paging_state)


def _number(paging_state: bytes) -> int:
    mark, number = paging_state[: len(_STATE_MARK)], paging_state[len(_STATE_MARK) :]
    if mark != _STATE_MARK or len(number) != 4:
        raise _invalid()
    return int.from_bytes(number, "big")


def _invalid() -> ProtocolError:
    return ProtocolError("Invalid value for the paging state")
