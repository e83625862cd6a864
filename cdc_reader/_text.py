"""Text that can be sent to a server or to the operating system."""

from __future__ import annotations


def is_text(value: str) -> bool:
    """Return True for a non-empty string in UTF-8, without NUL, which would truncate it."""
    try:
        value.encode()
    except UnicodeEncodeError:  # a byte that is not UTF-8, from a command line, is half a character
        return False
    return value != "" and "\0" not in value
