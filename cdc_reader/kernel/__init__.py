"""From the bytes of a ROWS result to Arrow, without a Python object a cell.

`decode` is the interface; `python` is its plain implementation.
"""

from cdc_reader.kernel.arrow_type import arrow_schema, arrow_type

__all__ = ["arrow_schema", "arrow_type"]
