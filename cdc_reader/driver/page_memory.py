"""The memory of pages: what one gives up, the next takes."""

from __future__ import annotations

_LARGEST = 31 << 20
"""Bytes; of blocks of more than 32 MiB, with what is put around them, glibc learns nothing."""


def keep_freed() -> None:
    """Let this process keep up to 62 MiB that it freed, instead of giving them back at once.

    A page takes a few MiB, and frees them when the next one is there. glibc gives back what is
    free beyond 128 KiB, or beyond twice the largest block it ever mapped and unmapped: so page
    after page would be faulted in anew, 4 KiB at a time. It learns from one such block, which
    takes no memory, for nothing is written to it. What the environment sets for malloc is
    kept, and other allocators take no notice. See mallopt(3), M_MMAP_THRESHOLD.
    """
    bytes(_LARGEST)
