"""A page of a query's result: its bytes as received, and the columns of its rows."""

from __future__ import annotations

from typing import Self

from attrs import field, frozen

from cdc_reader._time import Micros, SteadyClock
from cdc_reader.cql.schema import Column
from cdc_reader.decoding.metadata import ResultMetadata, check_same, parse_metadata

_STEADY = SteadyClock()


@frozen
class Page:
    """The body of a RESULT of kind ROWS and its metadata, which is parsed once.

    `received` is the time of arrival, in µs of `SteadyClock`: pages are requested ahead, so a page
    may wait before it is decoded, even while the machine is suspended.
    """

    body: bytes = field(repr=lambda body: f"<{len(body)} bytes>")
    metadata: ResultMetadata
    received: Micros = field(factory=_STEADY.now, eq=False)

    @classmethod
    def parse(cls, body: bytes, promised: tuple[Column, ...] | None = None) -> Self:
        """Parse the metadata; raise DecodeError if it is malformed, or the kind is not ROWS.

        If the server was asked to omit the columns, `promised` contains the columns of the
        statement.
        """
        return cls(body, parse_metadata(body, promised))

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the rows.

        Raises DecodeError if the columns are unknown, or if their number is wrong.
        """
        return self.metadata.agreed_columns()

    @property
    def paging_state(self) -> bytes | None:
        """The paging state of the next page; None on the last page."""
        return self.metadata.paging_state

    @property
    def age(self) -> int:
        """The µs since the page was received."""
        return _STEADY.now() - self.received

    def check(self, columns: tuple[Column, ...]) -> None:
        """Raise DecodeError unless the page has exactly these columns."""
        if (own := self.columns) is not columns:
            check_same(own, columns)
