"""The store of a consumer to which none is given: a file in the working directory."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from cdc_reader.checkpoints.sqlite import SqliteCheckpoints
from cdc_reader.errors import CheckpointError

_LONGEST_NAME = 200


def default_file(application: str) -> Path:
    """Return the file in the working directory that is named after an application.

    Applications may share a file, because the names of checkpoints contain the application.
    """
    name = re.sub(r"[^\w.-]", "-", application, flags=re.ASCII)
    return Path(f"{name[:_LONGEST_NAME]}.db")


def default_checkpoints(application: str) -> SqliteCheckpoints:
    """Return a store in the application's file; raise CheckpointError if it cannot be written."""
    file = default_file(application)
    with suppress(FileNotFoundError):  # the working directory was removed
        file = file.absolute()
    needed = (path for path in (file.parent, file) if path.exists())
    if file.is_absolute() and all(os.access(path, os.R_OK | os.W_OK) for path in needed):
        return SqliteCheckpoints(file)
    raise CheckpointError(
        f"cannot write checkpoints to {file}: start in another directory, or pass checkpoints, "
        "such as SqliteCheckpoints(path), or MemoryCheckpoints() to begin anew with each run"
    )
