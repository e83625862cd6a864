"""A copy of a table in a Delta table, in one process: see `TableCopy`."""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from cdc_reader._log import get_logger
from cdc_reader.changes.folding.fold import fold, needed_partitions, row_updates
from cdc_reader.copies import row_state
from cdc_reader.copies.arrow_columns import lacks_columns, refuse_table, table_fields
from cdc_reader.copies.columns import CopyColumns, state_beside
from cdc_reader.copies.delta import DeltaFiles, Remedies
from cdc_reader.copies.expiry import expired
from cdc_reader.copies.merging import Merge, mergeable
from cdc_reader.copies.position_file import PositionFile, Positions, of_other_table
from cdc_reader.copies.present_rows import present_rows
from cdc_reader.copies.properties import COPY, STATE, application, own_properties
from cdc_reader.copies.refusals import of_earlier_version, taken_name
from cdc_reader.copies.rereading import Rereading, can_be_read_again
from cdc_reader.copies.upkeep import DAY, MOST_FILES
from cdc_reader.cql.names import TableName, without_case
from cdc_reader.cql.schema import ColumnKind, TableSchema
from cdc_reader.errors import CheckpointError, ConfigurationError, MirrorError
from cdc_reader.reading.cursor import Checkpoint

if TYPE_CHECKING:
    from deltalake import DeltaTable

log = get_logger(__name__)

_NOTHING = 0
"""The version of a copy before its first commit."""
_NONCE_BITS = 32
_LOG = "_delta_log"
"""The folder that is left if a process ends while it makes a Delta table."""
_INSTEAD = "keep the copy with mirror in Spark, in a session with Delta Lake's extension"
_REMEDIES = Remedies(
    install="install deltalake (pip install 'scylla-cdc[lake]')", table=_INSTEAD, column=_INSTEAD
)


@contextmanager
def opened(folder: Path, table: TableName) -> Iterator[TableCopy]:
    """Open the copy of a table for writing; see `TableCopy`.

    Raises LeaseHeldError if another process has it open.
    """
    file = PositionFile.beside(folder)
    with file.locked():
        yield TableCopy(folder, table, file)


class TableCopy:
    """The copy of a table in a folder, and the position of the log that it has reached.

    Each commit changes rows of the Delta table, and records a version in the same commit. The
    position at each version is in the `file`, so that rows and position always belong together.
    Only one process at a time may have the copy open.

    Raises ConfigurationError if there cannot be a copy in the folder, and CheckpointError if the
    folder has something else, or does not belong to its position.
    """

    def __init__(self, folder: Path, table: TableName, file: PositionFile) -> None:
        self.folder, self.file, self._table = folder, file, table
        self._delta = DeltaFiles(str(folder), _REMEDIES)
        self._id, self._version = uuid.uuid4().hex, _NOTHING
        self._prepared: TableSchema | None = None
        self._cleaned: float | None = None
        self.position: Checkpoint | None = None
        """The position that the copy has reached, or None if there is no copy yet."""
        with self._told():
            self._open()

    def begin(self, schema: TableSchema, position: Checkpoint) -> None:
        """Make an empty copy, whose rows will come from a snapshot that begins at the position."""
        refuse_table(schema)
        self._delta.refuse_backticks(column.name for column in schema.columns)
        self._save({_NOTHING: position})  # first: a copy without a position could not go on
        state = state_beside(column.name for column in schema.columns)
        fields = [*table_fields(schema), pa.field(state, row_state.TYPE)]
        properties = {**own_properties(_columns(schema, state)), COPY: self._id}
        with self._told():
            made = self._delta.deltalake.Schema.from_arrow(pa.schema(fields))
            self._delta.create(made, properties)
        self.position = position

    def insert(self, schema: TableSchema, rows: pa.Table, position: Checkpoint) -> None:
        """Add rows of a snapshot, given as inserts, none of which the copy has yet."""
        with self._told():
            table, columns = self._current(schema)
            found = fold(schema, rows)
            found = found.append_column(columns.state, row_state.states_of(found))
            version = self._announce(position)
            found = found.select(columns.row)
            self._delta.append(table, found, self._application, version)
            self._done(version, position)

    def apply(self, schema: TableSchema, changes: pa.Table, position: Checkpoint) -> None:
        """Merge changes into the copy.

        If `position` has not moved, the changes may be applied again, together with those after
        them: this leads to the same rows.
        """
        with self._told():
            table, columns = self._current(schema)
            rows = present_rows(table, columns, needed_partitions(schema, changes))
            updates = mergeable(columns, row_updates(schema, changes, rows))
            version = self._announce(position)
            self._delta.merge(table, updates, Merge(columns), self._application, version)
            self._done(version, position)

    def expire(self, schema: TableSchema, rereading: Rereading) -> None:
        """Remove what has expired up to the position; read again what may have expired in part."""
        if self.position is None or self.position.snapshot is not None:
            return
        if not all(can_be_read_again(it, is_text=True) for it in schema.partition_key):
            return
        with self._told():
            table, columns = self._current(schema)
            changes = expired(table, columns, rereading, self.position.position)
            if changes is not None:
                self.apply(schema, changes, self.position)

    def reach(self, position: Checkpoint) -> None:
        """Record that the copy has all changes before the position."""
        self._save({self._version: position})
        self.position = position

    def maintain(self) -> None:
        """Compact the files if there are many; once a day, remove those replaced a week ago.

        A failure is logged, and changes nothing for the copy.
        """
        now = time.monotonic()
        try:
            table = self._delta.table()
            if len(table.file_uris()) > MOST_FILES:
                table.optimize.compact(writer_properties=self._delta.writer_properties(table))
            if self._cleaned is None or now > self._cleaned + DAY:
                self._cleaned = now
                table.vacuum(dry_run=False)
        except (self._delta.deltalake.exceptions.DeltaError, OSError) as error:
            log.warning("maintenance_failed", target=str(self.folder), error=str(error))

    @property
    def _application(self) -> str:
        return application(self._id)

    def _open(self) -> None:
        """Find the copy and its position, if there is one."""
        stored = self.file.load()
        is_there = self._delta.deltalake.DeltaTable.is_deltatable(str(self.folder))
        if stored is None or (not is_there and {*stored.by_version} == {_NOTHING}):
            self._check_new(is_there=is_there)
            return
        if stored.table != str(self._table):
            raise of_other_table(self.file, self._table, stored.table)
        if not is_there:
            raise CheckpointError(
                f"there is no copy in {self.folder}, but its checkpoint {self.file}: restore the "
                "copy, or delete the checkpoint to start over"
            )
        self._id = stored.copy
        table = self._delta.table()
        self._check_id(table.metadata().configuration.get(COPY))
        if STATE not in table.metadata().configuration:
            raise of_earlier_version(str(self.folder))
        self._version = table.transaction_version(self._application) or _NOTHING
        self.position = stored.by_version.get(self._version)
        if self.position is None:
            raise CheckpointError(
                f"{self.file} has no position of the copy in {self.folder}: one of them was "
                "restored or replaced; restore both from the same time, or delete both to start "
                "over"
            )

    def _check_new(self, *, is_there: bool) -> None:
        """Raise an error unless a copy can be made in the folder."""
        if is_there:
            self._check_id(self._delta.table().metadata().configuration.get(COPY))
        if self.folder.exists() and {each.name for each in self.folder.iterdir()} - {_LOG}:
            remedy = "expected a new or an empty folder for the copy: give another one"
            raise ConfigurationError("FOLDER", str(self.folder), remedy)

    def _check_id(self, found: str | None) -> None:
        """Raise CheckpointError unless this is the id of the copy, which the file has."""
        if found is None:
            raise CheckpointError(
                f"{self.folder} is a Delta table that 'scylla-cdc mirror' has not made: give "
                "another folder"
            )
        if found != self._id:
            raise CheckpointError(
                f"the copy in {self.folder} was written with another checkpoint than {self.file}: "
                "restore that checkpoint, or delete both to start over"
            )

    def _current(self, schema: TableSchema) -> tuple[DeltaTable, CopyColumns]:
        """Return the Delta table with all columns of the schema, and their names."""
        table = self._delta.table()
        if (table.transaction_version(self._application) or _NOTHING) != self._version:
            raise CheckpointError(
                f"another process has written to the copy in {self.folder}: stop it, then start "
                "again to continue"
            )
        state = table.metadata().configuration[STATE]
        if self._prepared != schema:
            self._add_columns(table, schema, state)
            table, self._prepared = self._delta.table(), schema
        return table, _columns(schema, state)

    def _add_columns(self, table: DeltaTable, schema: TableSchema, state: str) -> None:
        refuse_table(schema)
        self._delta.refuse_backticks(column.name for column in schema.columns)
        taken = [it.name for it in schema.columns if without_case(it.name) == without_case(state)]
        if taken:
            raise taken_name(str(self.folder), taken[0])
        there = pa.schema(table.schema().to_arrow())
        if lacks_columns(str(self.folder), there, schema):
            wanted = pa.schema(table_fields(schema))
            self._delta.add_columns(table, self._delta.deltalake.Schema.from_arrow(wanted))

    def _announce(self, position: Checkpoint) -> int:
        """Save the position that the copy will have; return the version to commit."""
        assert self.position is not None  # noqa: S101 - the copy was begun
        # The random part tells apart the commits of a copy that was restored from a backup.
        number = (self._version >> _NONCE_BITS) + 1
        version = number << _NONCE_BITS | secrets.randbits(_NONCE_BITS)
        self._save({self._version: self.position, version: position})
        return version

    def _done(self, version: int, position: Checkpoint) -> None:
        """Save the position that the copy has since the commit of the version."""
        self._version = version
        self.reach(position)

    def _save(self, by_version: dict[int, Checkpoint]) -> None:
        self.file.save(Positions(self._id, str(self._table), by_version))

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Raise errors of deltalake as one line."""
        errors = self._delta.deltalake.exceptions
        try:
            yield
        except errors.CommitFailedError as error:
            raise MirrorError(
                f"another process wrote to the copy in {self.folder} at the same time: stop it, "
                "then start again to continue"
            ) from error
        except (errors.DeltaError, OSError) as error:
            why = " ".join(str(error).split())
            raise MirrorError(
                f"the copy in {self.folder} cannot be read or written: {why}; start again when the "
                "cause is gone: it continues where it ended"
            ) from error


def _columns(table: TableSchema, state: str) -> CopyColumns:
    """Return the names of the columns of a copy without buckets."""
    statics = [it.name for it in table.of_kind(ColumnKind.STATIC) if table.clustering]
    return CopyColumns(
        [column.name for column in table.columns],
        [column.name for column in table.partition_key],
        [column.name for column in table.clustering],
        statics,
        state,
    )
