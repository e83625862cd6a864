from collections.abc import Sequence

import pyarrow as pa

from cdc_reader.schema import Column

def decode(body: bytes, columns: Sequence[Column] | None = None) -> pa.RecordBatch: ...
