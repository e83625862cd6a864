"""The store of a consumer to which none is given: a file in the working directory."""

from __future__ import annotations

import os
import re
from pathlib import Path

from cdc_reader._log import get_logger
from cdc_reader.checkpoints.memory import MemoryCheckpoints
from cdc_reader.checkpoints.sqlite import SqliteCheckpoints
from cdc_reader.checkpoints.store import CheckpointStore

log = get_logger(__name__)

_LONGEST_NAME = 200


def default_file(application: str) -> Path:
    """Return the file in the working directory that is named after an application.

    Applications may share a file, because the names of checkpoints contain the application.
    """
    name = re.sub(r"[^\w.-]", "-", application, flags=re.ASCII)
    return Path(f"{name[:_LONGEST_NAME]}.db")


def default_checkpoints(application: str) -> CheckpointStore:
    """Return a store in the application's file, or in memory if the file cannot be written."""
    file = default_file(application)
    needed = (path for path in (Path(), file) if path.exists())
    if all(os.access(path, os.R_OK | os.W_OK) for path in needed):
        return SqliteCheckpoints(file)
    log.warning("checkpoints_in_memory", cannot_write=str(file.absolute()))
    return MemoryCheckpoints()
