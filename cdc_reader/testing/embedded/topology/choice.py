"""Chooses the source of a log table's streams."""

from __future__ import annotations

from attrs import frozen

from cdc_reader.testing.embedded.cdc.write_path import StreamChooser
from cdc_reader.testing.embedded.schema.catalog import Catalog
from cdc_reader.testing.embedded.schema.table import Table
from cdc_reader.testing.embedded.topology.misplacing import Misplacing, MisplacingChooser
from cdc_reader.testing.embedded.topology.streams import Streams
from cdc_reader.testing.embedded.topology.tablet_streams import TabletStreams


@frozen
class StreamChoice:
    """Chooses a log's source of streams: its stream history for tablets, generations for vnodes."""

    catalog: Catalog
    vnodes: Streams
    tablets: TabletStreams
    misplacing: Misplacing

    def __call__(self, log: Table) -> StreamChooser:
        """Return the stream chooser for a log."""
        uses_tablets = self.catalog.keyspace(log.keyspace).tablets is not None
        chooser = self.tablets.of(log) if uses_tablets else self.vnodes
        return MisplacingChooser(chooser, self.misplacing)
