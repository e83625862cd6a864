"""An application that reads a log in the ways that the test requests.

The argument is SETTINGS_JSON. Each line of the input is JSON: the name of a way to read, the
options of the source, and a directory for output. For each line, the program prints one line: the
result, or an error.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.connectors.pyspark_scylla_cdc.support.available_now import read_available

Options = dict[str, str]


def batch(spark: SparkSession, options: Options, _folder: str) -> list[int]:
    """Read a batch, and return what `found` returns."""
    return found(spark.read.format("scylla_cdc").options(**options).load())


def places(spark: SparkSession, options: Options, _folder: str) -> list[str]:
    """Return the working directories of the executors that take part in a batch read."""
    frame = spark.read.format("scylla_cdc").options(**options).load().select("number")
    return sorted({row.place for row in frame.mapInArrow(place, "place string").collect()})


def place(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the working directory of the executor, if its partition has rows."""
    if sum(batch.num_rows for batch in batches):
        yield pa.RecordBatch.from_pydict({"place": [str(Path.cwd())]})


def parquet(spark: SparkSession, options: Options, folder: str) -> list[int]:
    """Write a query's rows to Parquet files, and return what `found` returns for these files."""
    run(changes(spark, options).format("parquet").option("path", f"{folder}/rows"), folder)
    return kept(spark, options, folder)


def kept(spark: SparkSession, _options: Options, folder: str) -> list[int]:
    """Return what `found` returns for the Parquet files, even if another query wrote them."""
    return found(spark.read.parquet(f"{folder}/rows"))


def for_each_batch(spark: SparkSession, options: Options, folder: str) -> list[int]:
    """Write each micro-batch to Parquet files under its number, and return what `found` returns."""

    def keep(frame: DataFrame, number: int) -> None:
        frame.write.mode("overwrite").parquet(f"{folder}/rows/batch={number}")

    run(changes(spark, options).foreachBatch(keep), folder)
    return kept(spark, options, folder)


def delta(spark: SparkSession, options: Options, folder: str) -> list[int]:
    """Append rows to a Delta table, one commit per micro-batch. Return what `found` returns."""
    rows = f"{folder}/rows"

    def append(frame: DataFrame, number: int) -> None:
        done = (
            DeltaTable(rows).transaction_version("rows") if DeltaTable.is_deltatable(rows) else None
        )
        if done is None or number > done:
            commit = CommitProperties(app_transactions=[Transaction("rows", number)])
            columns = frame.select("pk", "number").toArrow()
            write_deltalake(rows, columns, mode="append", commit_properties=commit)

    run(changes(spark, options).foreachBatch(append), folder)
    return found(spark.createDataFrame(DeltaTable(rows).to_pyarrow_table(columns=["number"])))


WAYS = {way.__name__: way for way in (batch, places, parquet, kept, for_each_batch, delta)}


def changes(spark: SparkSession, options: Options) -> DataStreamWriter:
    """Return a query that reads the log."""
    return spark.readStream.format("scylla_cdc").options(**options).load().writeStream


def run(writer: DataStreamWriter, folder: str) -> None:
    """Run the query until it has read all settled rows."""
    read_available(writer.option("checkpointLocation", f"{folder}/checkpoint"))


def found(frame: DataFrame) -> list[int]:
    """Return the count, the distinct count, the minimum and the maximum of column `number`."""
    number = sf.col("number")
    [row] = frame.agg(
        sf.count(number), sf.count_distinct(number), sf.min(number), sf.max(number)
    ).collect()
    return list(row)


def main(settings: dict[str, Any]) -> None:
    """Answer requests until the input ends."""
    spark = SparkSession.builder.config(map=settings).getOrCreate()
    for line in sys.stdin:
        asked: dict[str, Any] = json.loads(line)
        try:
            answer: dict[str, Any] = {
                "found": WAYS[asked["way"]](spark, asked["options"], asked["folder"])
            }
        except Exception:  # noqa: BLE001 - the test prints it
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
