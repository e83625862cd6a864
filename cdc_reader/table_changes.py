"""From deliveries of one table to its changes, while its schema may change."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

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
        return self._of_schema_before(delivery) + self._grouping(delivery).feed(delivery.batch)

    def each(self, delivery: Delivery) -> Iterator[Change]:
        """The same changes, made while they are asked for; see `Grouping.each`."""
        if delivery.batch is None:
            return iter(self._finish())
        left = self._of_schema_before(delivery)
        return chain(left, self._grouping(delivery).each(delivery.batch))

    def _of_schema_before(self, delivery: Delivery) -> list[Change]:
        """What was held back of batches of another schema; no record has rows of both."""
        if delivery.schema is self._schema:
            return []
        self._schema = delivery.schema
        return self._finish()

    def _grouping(self, delivery: Delivery) -> Grouping:
        if delivery.late not in self._groupings:
            self._groupings[delivery.late] = Grouping(delivery.schema, late=delivery.late)
        return self._groupings[delivery.late]

    def _finish(self) -> list[Change]:
        left = [change for grouping in self._groupings.values() for change in grouping.finish()]
        self._groupings = {}
        return left
