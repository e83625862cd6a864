"""Names of the columns that formats add to those of the table."""

from __future__ import annotations

CHANGE_TYPE = "_change_type"
COMMIT_TIMESTAMP = "_commit_timestamp"
COMMIT_VERSION = "_commit_version"
SEQUENCE = "_sequence"
MODIFIED = "_modified_columns"
NULLED = "_nulled_columns"
INSERTED = "_inserted"
RANGE = "_range"

ALL = frozenset(
    (CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, SEQUENCE, MODIFIED, NULLED, INSERTED, RANGE)
)
