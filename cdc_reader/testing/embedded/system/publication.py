"""Publishes generations at once, or partially until a test completes them."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import define, field

from cdc_reader.testing.embedded.system.generation_tables import (
    GenerationTables,
    Scylla43GenerationTable,
)
from cdc_reader.testing.embedded.topology.generation import Generation

DescriptionTables = GenerationTables | Scylla43GenerationTable


@define
class Publication:
    """Publishes generations as ScyllaDB does: the description, then the timestamp."""

    tables: DescriptionTables
    _rows: int | None = None
    _holding: bool = False
    _held: list[Generation] = field(factory=list)

    def publish(self, generation: Generation) -> None:
        """Publish a generation or, while publications are held, only part of it."""
        if self._holding:
            self._held.append(generation)
            self.tables.describe(generation, self._rows)
        else:
            self._publish(generation)

    def hold(self, rows: int | None = None) -> None:
        """Publish new generations only partially: `rows` rows (None: all), and no timestamp."""
        self._holding, self._rows = True, rows

    def resume(self) -> None:
        """Publish new generations completely again; generations already held back stay held."""
        self._holding = False

    def complete(self) -> tuple[Generation, ...]:
        """Stop holding generations back; publish the held ones in order, and return them."""
        self.resume()
        held, self._held = tuple(self._held), []
        for generation in held:
            self._publish(generation)
        return held

    def rewrite(self, tables: DescriptionTables, generations: Iterable[Generation]) -> None:
        """Publish to `tables` from now on, beginning with all `generations` that are not held."""
        self.tables = tables
        for generation in generations:
            if generation not in self._held:
                self._publish(generation)

    def _publish(self, generation: Generation) -> None:
        self.tables.describe(generation)
        self.tables.announce(generation)
