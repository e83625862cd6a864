"""The table of types for the reference pages, made of the types themselves.

``python -m pyspark_scylla_cdc.type_table`` prints it as Markdown.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from cdc_reader.cql_type import NATIVE_TYPES, CqlType, parse
from pyspark_scylla_cdc.formats.value_types import ValueTypes
from pyspark_scylla_cdc.types import spark_type

_NOTES = {
    "date": "All of CQL's dates; Python's own calendar, not Spark's, ends at the years 1 and 9999.",
    "decimal": "All digits, as they were written; or a number, see `decimalType`.",
    "duration": "Its three parts.",
    "inet": "The address as people write it.",
    "time": "Nanoseconds since midnight.",
    "timestamp": "CQL counts milliseconds; one beyond 64 bits of microseconds (the years -290308 "
    "to 294247) ends the query: leave its column out with `columns`.",
    "timeuuid": "In canonical form, for order see `_commit_version`.",
    "uuid": "In canonical form.",
    "varint": "All digits; or a number, see `decimalType`.",
}
_NESTED = {
    "list<int>": "In format `log` one that is not frozen is a map from time UUIDs, as it is there.",
    "set<int>": "In the server's order.",
    "map<text, int>": "",
    "tuple<text, int>": "Its elements are `_1`, `_2` and so on.",
    "vector<float, 3>": "",
}
_NUMBER = pa.decimal128(38, 10)


def markdown() -> str:
    """The table: each type, what it is in Spark, and what there is to know."""
    lines = ["| CQL | Spark | |", "|---|---|---|"]
    lines += [f"| {cql} | {spark} | {note} |" for cql, spark, note in _rows()]
    return "\n".join(lines) + "\n"


def _rows() -> Iterator[tuple[str, str, str]]:
    for name in sorted(NATIVE_TYPES - {"counter"}):  # a table of counters has no log
        yield name, _spark(parse(name)), _NOTES.get(name, "")
    for text, note in _NESTED.items():
        yield f"`{text}`", _spark(parse(text)), note
    yield "user-defined type", "struct of its fields", "Frozen or not, in either format."


def _spark(cql_type: CqlType) -> str:
    """The Spark type, and the one it may be instead."""
    own, number = (
        spark_type(types.of(cql_type)).simpleString()
        for types in (ValueTypes(), ValueTypes(_NUMBER))
    )
    return f"`{own}`" if own == number else f"`{own}` or `decimal(p, s)`"


if __name__ == "__main__":
    print(markdown(), end="")  # noqa: T201 - the module's output is its purpose
