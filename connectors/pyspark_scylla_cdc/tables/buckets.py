"""The partitions of a copy: buckets by a hash of the partition key.

A merge opens only the files of the buckets that a micro-batch touches, because its condition names
them. Files can have statistics for a few columns only, and keys of a table arrive in the order of
their tokens, so no other order of rows would let an engine skip as many files.

The number of buckets grows with the square root of the number of rows, and so does the size of a
bucket: neither the number of files nor the cost of rewriting one grows as fast as the table.
Buckets are added one at a time, by linear hashing: bucket ``n`` takes its rows from one other
bucket, and all others stay as they are (W. Litwin, "Linear hashing", VLDB 1980).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt

from cdc_reader.copies.columns import quoted

ROWS_OF_ONE = 4096
"""The number of rows for which a copy has a single bucket; 16 million rows have 62."""
MOST = 4096


def wanted(rows: int) -> int:
    """Return the number of buckets for a copy with this many rows."""
    return min(MOST, max(1, isqrt(rows // ROWS_OF_ONE)))


def bucket_of(partition: Sequence[str], count: int) -> str:
    """Return the bucket of a row in SQL, of `count` buckets.

    `partition` are the columns of its partition key.
    """
    last = _power(count - 1) * 2 if count > 1 else 1
    number = f"xxhash64({', '.join(map(quoted, partition))})"
    fine, coarse = (f"pmod({number}, {size})" for size in (last, max(1, last // 2)))
    return f"CAST(IF({fine} < {count}, {fine}, {coarse}) AS INT)"


def split_by(new: int) -> int:
    """Return the bucket whose rows are divided when bucket number `new` is added."""
    return new - _power(new)


def _power(number: int) -> int:
    """Return the greatest power of two that is not greater than `number`."""
    return 1 << (number.bit_length() - 1)
