"""The memory of pages: what one gives up, the next takes."""

from __future__ import annotations

from contextlib import suppress
from functools import cache

_LARGEST = 31 << 20
"""Bytes; of blocks of more than 32 MiB, with what is put around them, glibc learns nothing. With
half of it, the arena of the driver's thread is still cut back now and then, by 40 MiB at a time.
"""


@cache
def keep_freed() -> None:
    """Let this process keep memory that it freed, up to 62 MiB at the end of each of its arenas.

    A page takes a few MiB, and frees them when the next one is there. glibc gives back what is
    free at the end of an arena beyond 128 KiB, or beyond twice the largest block it ever mapped
    by itself and unmapped: so page after page would be faulted in anew, 4 KiB at a time. It
    learns from one such block, which is not written to. What the environment sets for
    malloc is kept, and other allocators take no notice. See mallopt(3), M_MMAP_THRESHOLD.

    It holds for whatever the process does, so it is for Spark's workers, which do little else.
    """
    with suppress(MemoryError):
        bytes(_LARGEST)
