"""From the bytes of a ROWS result to Arrow, without a Python object a cell.

`decode` is the interface; `python` is its plain implementation.
"""

from cdc_reader.kernel.arrow_type import arrow_schema, arrow_type
from cdc_reader.kernel.metadata import ResultMetadata, parse_metadata
from cdc_reader.kernel.python import decode

__all__ = ["ResultMetadata", "arrow_schema", "arrow_type", "decode", "parse_metadata"]
