"""A hand-written merge of changes by Spark, into a table of Delta Lake or Iceberg.

It does for these formats what `merge_by_hand` of the suite `mirror` does with deltalake.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf


def append_by_hand(rows: DataFrame, table: str, *, provider: str) -> None:
    """Append rows to the table, and create it if it does not exist."""
    if provider == "delta":
        rows.write.format("delta").mode("append").save(table)
    elif rows.sparkSession.catalog.tableExists(table):
        rows.writeTo(table).append()
    else:
        rows.writeTo(table).using(provider).create()


def merge_by_hand_in_spark(changes: DataFrame, table: str, *, provider: str) -> None:
    """Merge the last change of each row, as users without `mirror` would."""
    order = sf.col("_commit_version").desc(), sf.col("_sequence").desc()
    place = sf.row_number().over(Window.partitionBy("pk", "ck").orderBy(*order))
    is_delete = sf.col("_change_type") == "delete"
    last = changes.withColumn("place", place).where("place = 1").withColumn("gone", is_delete)
    last.select("pk", "ck", "v", "w", "gone").createOrReplaceTempView("last_changes")
    name = f"delta.`{Path(table)}`" if provider == "delta" else table
    changes.sparkSession.sql(
        f"MERGE INTO {name} t USING last_changes s ON t.pk = s.pk AND t.ck = s.ck "
        "WHEN MATCHED AND s.gone THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET v = s.v, w = s.w "
        "WHEN NOT MATCHED AND NOT s.gone THEN "
        "INSERT (pk, ck, v, w) VALUES (s.pk, s.ck, s.v, s.w)"
    )
