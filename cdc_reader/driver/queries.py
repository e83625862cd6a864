"""What the sources of this package ask of a cluster, whatever way leads to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pyarrow as pa
from attrs import frozen

from cdc_reader.driver.request import Page
from cdc_reader.kernel import decode
from cdc_reader.schema import Column

T = TypeVar("T")


@frozen
class Query:
    """A SELECT with a ``?`` for each of its values.

    `columns` are those of the result, if they are known: the query is then prepared, and a
    result of others is a DecodeError. `consistency` is that of the configuration if None;
    `doing` says in errors what the query is for, the text itself if empty.
    """

    cql: str
    values: tuple[object, ...] = ()
    columns: tuple[Column, ...] | None = None
    consistency: str | None = None
    doing: str = ""

    @property
    def purpose(self) -> str:
        return self.doing or self.cql


class Queries(ABC):
    """Asks queries, page by page. Every method raises errors of `cdc_reader.errors` only."""

    @abstractmethod
    def pages(self, query: Query) -> Iterator[Page]:
        """All pages, the first asked for now, each next one before its forerunner is handed on.

        A page that fails for a reason that may pass is asked for again from its own paging state.
        """

    @abstractmethod
    def retry(self, action: Callable[[], T]) -> T:
        """What `action` returns, called again while it raises TransientError."""

    def batches(self, query: Query) -> Iterator[pa.RecordBatch]:
        """The pages, decoded; the first asked for now."""
        return (decode(page.body, query.columns) for page in self.pages(query))

    def rows(self, cql: str, *values: object) -> list[dict[str, Any]]:
        """All rows of a small query at ONE, each a dict by column."""
        batches = self.batches(Query(cql, values, consistency="ONE"))
        return [row for batch in batches for row in batch.to_pylist()]
