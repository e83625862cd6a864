"""Errors of this project as Spark tells them: the message alone, without Python's frames."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from cdc_reader.errors import CdcError, ColumnDecodeError


@contextmanager
def told_plainly() -> Iterator[None]:
    """An error that says it all leaves without frames; any other is a bug, and keeps them.

    Spark's workers write their frames into the message, unless this variable is set when they
    come to it. A worker ends with the error it tells, so the variable is there for this one only.
    """
    try:
        yield
    except CdcError as error:
        if _in_worker():
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise error.with_traceback(None) from None


@contextmanager
def with_remedy() -> Iterator[None]:
    """A value that cannot be shown, told with the option that leaves its column out."""
    try:
        yield
    except ColumnDecodeError as error:
        raise ColumnDecodeError(f"{error}; option columns can leave the column out") from None


def _in_worker() -> bool:
    """Whether this process is a worker of Spark's, started as a module of it."""
    main = sys.modules["__main__"].__spec__
    return main is not None and main.name.startswith("pyspark.")


class RefusedStream(DataSourceStreamReader):
    """A stream that cannot be read: it says why when it is asked for something.

    Spark drops an error of `streamReader` itself: on its way out it stops the reader that it did
    not get, and shows the error of that.
    """

    def __init__(self, error: CdcError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:  # noqa: N802 - Spark's name
        self._refuse()

    def latestOffset(self, start: Any, limit: Any) -> NoReturn:  # noqa: ARG002, N802 - Spark's names
        self._refuse()

    def partitions(
        self,
        start: dict[str, Any],  # noqa: ARG002 - Spark's name
        end: dict[str, Any],  # noqa: ARG002 - Spark's name
    ) -> NoReturn:
        self._refuse()

    def read(self, partition: InputPartition) -> NoReturn:  # noqa: ARG002 - Spark's name
        self._refuse()

    @told_plainly()
    def _refuse(self) -> NoReturn:
        raise self._error
