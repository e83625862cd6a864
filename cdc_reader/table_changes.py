"""From deliveries of one table to its changes, while its schema may change."""

from __future__ import annotations

from cdc_reader.change import Change
from cdc_reader.delivery import Delivery
from cdc_reader.grouping import Grouping
from cdc_reader.schema import LogSchema


class TableChanges:
    """Groups the batches of one table's deliveries; late rows apart from the others."""

    def __init__(self) -> None:
        self._schema: LogSchema | None = None
        self._groupings: dict[bool, Grouping] = {}

    def feed(self, delivery: Delivery) -> list[Change]:
        """The changes that are whole with this delivery; with a completion, all that are left."""
        if delivery.batch is None:
            return self._finish()
        left = self._finish() if delivery.schema is not self._schema else []
        self._schema = delivery.schema
        if delivery.late not in self._groupings:
            self._groupings[delivery.late] = Grouping(delivery.schema, late=delivery.late)
        return left + self._groupings[delivery.late].feed(delivery.batch)

    def _finish(self) -> list[Change]:
        left = [change for grouping in self._groupings.values() for change in grouping.finish()]
        self._groupings = {}
        return left
