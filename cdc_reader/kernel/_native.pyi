from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from cdc_reader.kernel.bulk import T
from cdc_reader.schema import Column

def decode(body: bytes, columns: Sequence[Column] | None = None) -> pa.RecordBatch: ...
def instances(cls: type[T], count: int, *columns: Iterable[Any]) -> list[T]: ...
def put_all(mappings: Iterable[dict[str, Any]], name: str, values: Iterable[Any]) -> None: ...
