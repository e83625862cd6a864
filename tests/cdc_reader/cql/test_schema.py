from __future__ import annotations

import random

from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import Column, ColumnKind, LogSchema, TableSchema
from cdc_reader.cql.types import Native

_LOG_ORDER = """cdc$stream_id cdc$time cdc$batch_seq_no b cdc$deleted_b cdc$end_of_batch
cdc$operation cdc$ttl p""".split()


def test_log_columns_come_in_the_server_s_order() -> None:
    """Key columns are ordered by position, and other columns by the bytes of their names."""
    text = Native("text")
    columns = [
        Column("cdc$stream_id", text, ColumnKind.PARTITION_KEY, 0),
        Column("cdc$time", text, ColumnKind.CLUSTERING, 0),
        Column("cdc$batch_seq_no", text, ColumnKind.CLUSTERING, 1),
        *(Column(name, text) for name in _LOG_ORDER[3:]),
    ]
    random.Random(0).shuffle(columns)
    schema = LogSchema(TableSchema(TableName("ks", "t"), ()), tuple(columns))
    assert [column.name for column in schema.columns] == _LOG_ORDER
    assert schema.name == TableName("ks", "t_scylla_cdc_log")
