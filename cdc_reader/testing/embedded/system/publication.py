"""Publication of generations: at once, or in part until a test completes it."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import define, field

from cdc_reader.testing.embedded.system.generation_tables import (
    GenerationTables,
    LegacyGenerationTable,
)
from cdc_reader.testing.embedded.topology.generation import Generation

DescriptionTables = GenerationTables | LegacyGenerationTable


@define
class Publication:
    """Publishes generations as the server does: the description, then the timestamp."""

    tables: DescriptionTables
    _rows: int | None = None
    _holding: bool = False
    _held: list[Generation] = field(factory=list)

    def publish(self, generation: Generation) -> None:
        """Make a generation visible to clients, or only part of it while publications are held."""
        if self._holding:
            self._held.append(generation)
            self.tables.describe(generation, self._rows)
        else:
            self._publish(generation)

    def hold(self, rows: int | None = None) -> None:
        """From now on write only `rows` description rows, all if None, and no timestamp."""
        self._holding, self._rows = True, rows

    def complete(self) -> tuple[Generation, ...]:
        """Write what was held back, in order; from now on hold nothing. Return what was held."""
        self._holding = False
        held, self._held = tuple(self._held), []
        for generation in held:
            self._publish(generation)
        return held

    def rewrite(self, tables: DescriptionTables, generations: Iterable[Generation]) -> None:
        """Publish in other tables from now on, and publish these generations there again."""
        self.tables = tables
        for generation in generations:
            if generation not in self._held:
                self._publish(generation)

    def _publish(self, generation: Generation) -> None:
        self.tables.describe(generation)
        self.tables.announce(generation)
