"""Columns with the names that the code uses for its own columns are folded and copied.

`SCYLLA_CDC_SEEDS` sets the number of tables (2 if unset), and `SCYLLA_CDC_SEED` sets the first seed
(1 if unset).
"""

from __future__ import annotations

import ast
import os
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import cdc_reader
import pyspark_scylla_cdc
from cdc_reader import CdcReader, ChangeFormat, CqlWriter, Replicator
from cdc_reader.changes.frames import columns as names
from cdc_reader.cli.command import main
from cdc_reader.cql.names import quoted
from cdc_reader.errors import ConfigurationError
from pyspark_scylla_cdc import fold
from pyspark_scylla_cdc.tables.delta import DeltaLakeSink
from pyspark_scylla_cdc.tables.layout import VERSION, layout_of
from pyspark_scylla_cdc.tables.merge import DeltaSparkSink, IcebergSink
from pyspark_scylla_cdc.tables.sink import MicroBatch, Sink
from pyspark_scylla_cdc.tables.update import update
from tests.connectors.pyspark_scylla_cdc.support.lakehouse import CATALOG
from tests.connectors.pyspark_scylla_cdc.tables.test_fold import (
    CHANGES,
    in_order,
    rows_of,
    table_of,
)
from tests.examples.killed import example, keep_current
from tests.examples.test_copies import in_duckdb, in_parquet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cdc_reader.testing import Scylla

pytestmark = pytest.mark.spark

Execute = Callable[..., None]
Load = Callable[..., "DataFrame"]
SEEDS = int(os.environ.get("SCYLLA_CDC_SEEDS", "2"))
FIRST = int(os.environ.get("SCYLLA_CDC_SEED", "1"))

WORDS = ("order", "deleted", "since", "inserted", "other pk", "gone", "at", "rows", "told", "file")
"""The names of columns within a computation, without their underscores."""
KEYWORDS = ("select", "order", "from", "token", "merge", "null", "t", "s", "key", "value", "struct")
IN_PARQUET = {"_tmp_metadata_row_index"}
IN_DELTA = IN_PARQUET | {
    *"__delta_internal_is_row_deleted __delta_internal_row_index _file_name_ _row_id_".split()
}
IN_ICEBERG = {
    *"_deleted _file _last_updated_sequence_number _partition _pos _row_id _spec_id".split(),
    *"__original_row_id__file __original_row_id__pos".split(),
    *"__row_from_source __row_from_target __row_id __row_operation".split(),
}
IN_MERGES = "_metadata", "_target_row_present_", "_source_row_present_", "_row_dropped_"
"""Names that Spark, Delta Lake and Iceberg use. Only those of the sets are refused."""
THEIRS = sorted({*IN_DELTA, *IN_ICEBERG, *IN_MERGES})
MARKS = ".", " ", "'", '"', "`", ",", "$", "-"
TAKEN = {name.lower() for name in (*names.ALL, *VERSION)}
KINDS = "int", "int", "text static", "text", "int", "frozen<list<text>>"
"""The types of a table's columns; the first two are its key."""


def literals() -> Iterator[str]:
    """Yield every string in the code that may be the name of a column."""
    for package in (cdc_reader, pyspark_scylla_cdc):
        for path in sorted(Path(package.__path__[0]).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                text = getattr(node, "value", None) if isinstance(node, ast.Constant) else None
                if isinstance(text, str) and re.fullmatch(r"[A-Za-z_][\w. ]{0,24}", text):
                    yield text


WANTED = ChangeFormat(include_delta=True, range_deletes="emit")
POOL = sorted({*literals(), *KEYWORDS})


def name(draw: random.Random) -> str:
    """Draw a name: from the code, in any case, some with other characters."""
    found = draw.choice(POOL)
    if draw.random() < 0.5:
        found = "_" * draw.randrange(4) + draw.choice(WORDS)
    elif draw.random() < 0.1:
        found = draw.choice(THEIRS)
    if draw.random() < 0.3:
        found = "".join(draw.choice([letter.upper(), letter]) for letter in found)
    if draw.random() < 0.3:
        place = draw.randrange(len(found) + 1)
        found = found[:place] + draw.choice(MARKS) + found[place:]
    return found


def columns(draw: random.Random) -> list[str]:
    """Draw the names of a table's columns."""
    found: dict[str, str] = {}
    while len(found) < len(KINDS):
        drawn = name(draw)
        if drawn.lower() not in TAKEN:
            found.setdefault(drawn.lower(), drawn)
    return [*found.values()]


def statements(draw: random.Random, quoted_names: list[str]) -> Iterator[str]:
    """Yield writes and deletes."""
    pk, ck, static, *values = quoted_names
    for number in range(12):
        row = f"{pk} = {draw.randrange(2)} AND {ck} = {draw.randrange(3)}"
        cells = [f"'{number}'", str(number), f"['{number}']"]
        sets = [f"{column} = {cell}" for column, cell in zip(values, cells, strict=True)]
        yield draw.choice(
            [
                *(f"UPDATE {{t}} SET {each} WHERE {row}" for each in sets),
                f"UPDATE {{t}} SET {values[1]} = null WHERE {row}",
                f"UPDATE {{t}} SET {static} = '{number}' WHERE {pk} = {draw.randrange(2)}",
                f"INSERT INTO {{t}} ({pk}, {ck}) VALUES (0, {draw.randrange(3)})",
                f"DELETE FROM {{t}} WHERE {row}",
                f"DELETE FROM {{t}} WHERE {pk} = 0 AND {ck} > {draw.randrange(3)}",
            ]
        )


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_any_names(
    seed: int,
    scylla: Scylla,
    keyspace: str,
    execute: Execute,
    load: Load,
    tmp_path: Path,
) -> None:
    """Reads, copies and folds of a table do not depend on the names of its columns."""
    draw = random.Random(seed)
    own = columns(draw)
    print(f"seed {seed}: {own}")
    quotes = [quoted(each) for each in own]
    declared = ", ".join(f"{column} {kind}" for column, kind in zip(quotes, KINDS, strict=True))
    create = f"({declared}, PRIMARY KEY ({quotes[0]}, {quotes[1]}))"
    execute(
        f"CREATE TABLE {{t}} {create} WITH cdc = {{'enabled': true, 'postimage': true}}",
        f"CREATE TABLE {keyspace}.copy {create}",
        *statements(draw, quotes),
    )
    rows = table_of(scylla, f"{keyspace}.t")
    check_python(scylla, keyspace, own)
    assert table_of(scylla, f"{keyspace}.copy") == rows
    check_examples(scylla, keyspace, declared.replace(" static", ""), quotes, tmp_path)
    changes = load(**CHANGES).localCheckpoint()
    assert {*load(format="log").columns} >= {*own}
    assert load(format="envelope", rangeDeletes="skip").columns
    assert rows_of(fold(changes)) == rows
    for history in (False, True):
        for sink in sinks(changes.sparkSession, tmp_path, f"{keyspace}_{history}"):
            check_merged(sink, changes, rows, history=history)


def check_python(scylla: Scylla, keyspace: str, own: list[str]) -> None:
    """Read the table in Python, and replicate it."""
    writer = CqlWriter(scylla.contact_point)
    with CdcReader(scylla.contact_point, f"{keyspace}.t") as reader:
        Replicator(writer, {f"{keyspace}.t": f"{keyspace}.copy"}).apply_all(reader.changes())
        for change in reader.changes():
            assert {*change.to_dict()["key"], *change.deltas} <= {*own}
        assert {*reader.change_batches(format=WANTED).schema.names} >= {*own}
    writer.close()
    place = scylla.contact_point
    compared = CliRunner().invoke(
        main, ["compare", place, f"{keyspace}.t", place, f"{keyspace}.copy"]
    )
    assert compared.exit_code == 0, compared.output


def check_examples(
    scylla: Scylla, keyspace: str, declared: str, quotes: list[str], folder: Path
) -> None:
    """Keep copies of a table in DuckDB and in Parquet files; they take no static columns."""
    execute, name, (pk, ck, *values) = scylla.session.execute, f"{keyspace}.orders", quotes
    execute(
        f"CREATE TABLE {name} ({declared}, PRIMARY KEY ({pk}, {ck})) "
        "WITH cdc = {'enabled': true, 'postimage': true}"
    )
    for number in range(4):
        execute(f"INSERT INTO {name} ({pk}, {ck}, {values[0]}) VALUES (1, {number}, '{number}')")
    execute(f"UPDATE {name} SET {values[2]} = 5 WHERE {pk} = 1 AND {ck} = 0")
    execute(f"DELETE FROM {name} WHERE {pk} = 1 AND {ck} > 2")
    rows = table_of(scylla, name)
    for module, read in (("keep_duckdb_current", in_duckdb), ("keep_parquet_current", in_parquet)):
        keep_current(example(module), folder / module, scylla.contact_point, name)
        found = read(folder / module)
        assert in_order({each: row[each] for each in rows[0]} for row in found) == rows


def sinks(spark: SparkSession, folder: Path, table: str) -> Iterator[Sink]:
    """Yield a new copy in each format that the session can write."""
    yield DeltaLakeSink(str(folder / table))
    if "io.delta" in (spark.conf.get("spark.sql.extensions", None) or ""):
        yield DeltaSparkSink(spark, str(folder / f"{table}_delta"))
    if spark.conf.get(f"spark.sql.catalog.{CATALOG}", None) is not None:
        yield IcebergSink(spark, f"{CATALOG}.copies.{table}")


def is_refused(sink: Sink, columns: list[str]) -> bool:
    """Whether the format has no place for one of the columns."""
    lower = {column.lower() for column in columns}
    if isinstance(sink, IcebergSink):
        return not IN_ICEBERG.isdisjoint(lower)
    if isinstance(sink, DeltaSparkSink):
        return not IN_DELTA.isdisjoint(lower)
    return not IN_PARQUET.isdisjoint(lower) or any("`" in column for column in columns)


def check_merged(sink: Sink, changes: DataFrame, rows: object, *, history: bool) -> None:
    """Merge the changes into a copy."""
    wanted = layout_of(changes, history=history)
    if is_refused(sink, wanted.schema.names):
        with pytest.raises(ConfigurationError, match=r"column .* has a (backtick in its )?name"):
            sink.prepare(wanted)
        return
    layout = sink.prepare(wanted)
    update(sink, layout, changes, MicroBatch("query", 0, plan=7))
    found = sink.rows(changes.sparkSession)
    current = found.where("is_current") if history else found
    assert rows_of(current.drop(layout.state, *VERSION)) == rows


@pytest.mark.parametrize("column", ["_Sequence", "_range", "_bad_record", "_INSERTED"])
@pytest.mark.parametrize("is_key", [False, True])
def test_names_of_the_source(execute: Execute, load: Load, column: str, is_key: bool) -> None:
    """A column with a name of the source, in any case, is refused, unless it is left out."""
    key = f'"{column}"' if is_key else "pk"
    other = "" if is_key else f', "{column}" int'
    execute(
        f"CREATE TABLE {{t}} ({key} int PRIMARY KEY, v int{other}) WITH cdc = {{'enabled': true}}"
    )
    with pytest.raises(Exception, match=f"has a column {column}, but {column.lower()} is the name"):
        load(**CHANGES)
    if not is_key:
        assert column not in load(**CHANGES, columns="v").columns
