"""INSERT JSON: takes the values of all columns from one text."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define

from cdc_reader.cql.types import CqlType
from cdc_reader.testing.embedded.codec.json_text import JsonError, read_json
from cdc_reader.testing.embedded.codec.json_value import from_json
from cdc_reader.testing.embedded.codec.marshal import MarshalError
from cdc_reader.testing.embedded.errors import InvalidRequest, ServerError
from cdc_reader.testing.embedded.query.model import Evaluate, Execution, Unset, Value
from cdc_reader.testing.embedded.query.terms import Candidates
from cdc_reader.testing.embedded.schema.table import Column, Table


@define(eq=False)
class JsonRow:
    """The values in the JSON text of an execution; absent columns have the value `missing`."""

    _table: Table
    _text: Evaluate
    _missing: Value
    _read: tuple[Execution, Mapping[str, bytes | None]] | None = None

    def value(self, column: Column) -> Evaluate:
        """Return a function that returns the column's value."""
        return lambda execution: self._cells(execution).get(column.name, self._missing)

    def key(self, column: Column) -> Candidates:
        """Return a function that returns a key column's value; a missing value is rejected."""

        def candidates(execution: Execution) -> list[bytes]:
            value = self._cells(execution).get(column.name)
            if value is None:
                raise InvalidRequest(f"Missing mandatory PRIMARY KEY part {column.name}")
            return [value]

        return candidates

    def _cells(self, execution: Execution) -> Mapping[str, bytes | None]:
        """Return the values by column; the text is parsed once per execution."""
        if self._read is None or self._read[0] is not execution:
            self._read = execution, self._decoded(self._given(execution))
        return self._read[1]

    def _given(self, execution: Execution) -> str:
        text = self._text(execution)
        if text is None or isinstance(text, Unset):
            word = "null" if text is None else "unset value"
            raise InvalidRequest(f"Got {word} for INSERT JSON values")
        return text.decode()

    def _decoded(self, text: str) -> dict[str, bytes | None]:
        try:
            members = _by_column(read_json(text))
            return self._serialised(members)
        except (JsonError, MarshalError) as error:  # uncaught in ScyllaDB: code 0
            raise ServerError(str(error)) from None

    def _serialised(self, members: dict[str, object]) -> dict[str, bytes | None]:
        cells = {
            column.name: _cell(members.pop(column.name), column.type)
            for column in self._table.columns
            if column.name in members
        }
        if members:
            raise InvalidRequest(
                f"JSON values map contains unrecognized column: {next(iter(members))}"
            )
        return cells


def _by_column(value: object) -> dict[str, object]:
    """Return the members by column name: quoted names unchanged, others in lower case."""
    if not isinstance(value, dict):
        raise JsonError("JSON assert failed on condition 'IsObject()'")
    members: dict[str, object] = {}
    for name, each in value.items():
        members.setdefault(_column_name(name), each)
    return members


def _column_name(name: str) -> str:
    if len(name) > 1 and name.startswith('"') and name.endswith('"'):
        return name[1:-1]
    return name.encode(errors="surrogatepass").lower().decode(errors="surrogatepass")


def _cell(value: object, cql_type: CqlType) -> bytes | None:
    return None if value is None else from_json(value, cql_type)
