"""Shows this project's errors in Spark as messages only, without tracebacks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from cdc_reader.errors import CdcError, ColumnDecodeError, ConfigurationError, SchemaError
from pyspark_scylla_cdc.options.words import in_keyword_options, in_option_words


@contextmanager
def hide_traceback() -> Iterator[None]:
    """Hide the tracebacks of this project's errors. Other errors are bugs, and are not changed.

    Spark's workers write the traceback into the message unless an environment variable is set. A
    worker ends after it reports an error, so the variable affects only this error.
    """
    try:
        yield
    except CdcError as error:
        if _in_worker():
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise error.with_traceback(None) from None


@contextmanager
def with_remedy() -> Iterator[None]:
    """Rephrase errors with the names of the options that cause or fix them."""
    try:
        yield
    except ConfigurationError as error:
        raise in_option_words(error) from None
    except SchemaError as error:
        raise in_keyword_options(error) from None
    except ColumnDecodeError as error:
        raise ColumnDecodeError(
            f"{error}; use the option columns to leave the column out, or onBadRecord"
        ) from None


def _in_worker() -> bool:
    """Return True if this process is a Spark worker, started as one of Spark's modules."""
    main = sys.modules["__main__"].__spec__
    return main is not None and main.name.startswith("pyspark.")


class RefusedStream(DataSourceStreamReader):
    """A stream that cannot be read: every use raises the error.

    If `streamReader` itself raises an error, Spark does not show it. Spark then tries to stop a
    reader that does not exist, and shows the error of that attempt instead.
    """

    def __init__(self, error: CdcError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:  # noqa: N802 - Spark's name
        self._refuse()

    def latestOffset(  # noqa: N802 - Spark's name
        self,
        start: Any = None,  # noqa: ARG002 - Spark's name; Spark 4.0 and 4.1 pass neither
        limit: Any = None,  # noqa: ARG002
    ) -> NoReturn:
        self._refuse()

    def partitions(
        self,
        start: dict[str, Any],  # noqa: ARG002 - Spark's name
        end: dict[str, Any],  # noqa: ARG002 - Spark's name
    ) -> NoReturn:
        self._refuse()

    def read(self, partition: InputPartition) -> NoReturn:  # noqa: ARG002 - Spark's name
        self._refuse()

    @hide_traceback()
    def _refuse(self) -> NoReturn:
        raise self._error
