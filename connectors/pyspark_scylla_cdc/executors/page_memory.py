"""Keeps the memory of freed pages in the process for later pages."""

from __future__ import annotations

from contextlib import suppress
from functools import cache

_LARGEST = 31 << 20
"""Size of the block, in bytes.

glibc's limit does not grow by blocks of more than 32 MiB, header included. With a block of half
this size, the arena of the driver's thread still shrinks occasionally, by 40 MiB at a time."""


@cache
def keep_freed() -> None:
    """Let this process keep freed memory, up to 62 MiB at the end of each of its arenas.

    A page takes a few MiB, freed when the next page has arrived. glibc returns free memory at the
    end of an arena beyond 128 KiB, or beyond twice the largest block that it ever mapped separately
    and unmapped. So each page would cause page faults again, 4 KiB at a time. Mapping and unmapping
    one large block, which is never written to, raises that limit. Settings for malloc in the
    environment are kept, and other allocators are not affected. See mallopt(3), M_MMAP_THRESHOLD.

    The setting affects the whole process, so use it in Spark's workers, which do little else.
    """
    with suppress(MemoryError):
        bytes(_LARGEST)
