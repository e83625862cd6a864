"""What planning a statement gives: its variables and result columns, and a way to run it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from attrs import frozen

from cdc_reader.testing.embedded.query.execution import Execution
from cdc_reader.testing.embedded.query.result import ColumnSpec, Result


class Plan(Protocol):
    """A statement checked against the schema of its moment."""

    @property
    def bind_columns(self) -> tuple[ColumnSpec, ...]: ...

    @property
    def partition_key_indexes(self) -> tuple[int, ...]: ...

    @property
    def result_columns(self) -> tuple[ColumnSpec, ...]: ...

    @property
    def warnings(self) -> tuple[str, ...]: ...

    @property
    def is_lwt(self) -> bool: ...

    def execute(self, execution: Execution) -> Result:
        """Run it once."""
        ...


@frozen
class Deed:
    """A plan without variables or rows: DDL, USE, TRUNCATE."""

    action: Callable[[], Result]
    bind_columns: tuple[ColumnSpec, ...] = ()
    partition_key_indexes: tuple[int, ...] = ()
    result_columns: tuple[ColumnSpec, ...] = ()
    warnings: tuple[str, ...] = ()
    is_lwt: bool = False

    def execute(self, execution: Execution) -> Result:
        """Do it."""
        del execution
        return self.action()
