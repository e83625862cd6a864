"""Bounded reads of the log, one after another, while rows are written and expire."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, cast
from uuid import UUID

import pyarrow as pa
from attrs import evolve

from cdc_reader.errors import DataLossError, DecodeError, QueryRefusedError
from cdc_reader.reading.cursor import RowKey
from cdc_reader.streams.stream import StreamId
from cdc_reader.table_reader import TableReader
from cdc_reader.testing.in_process import InProcessConnection
from tests.cdc_reader.simulation.laws import LawBroken
from tests.cdc_reader.simulation.scenario import SECOND, Scenario
from tests.cdc_reader.simulation.truth import LogRow
from tests.cdc_reader.simulation.world import ReaderClock, World
from tests.cdc_reader.support.tuned import tuned

_CHANCE = 0.1
"""The chance per step that the read continues, and per batch that the caller is slow."""


class BoundedReads:
    """Bounded reads that must raise an error if rows expire before they are read.

    A read without an error must return, exactly once, each row that had settled when the read
    began. Rows of generations that were not announced within `PUBLICATION_WAIT` are exempt.
    """

    def __init__(self, world: World, scenario: Scenario, luck: random.Random) -> None:
        self._world = world
        self._scenario = scenario
        self._luck = luck
        self._clock = ReaderClock(world, scenario.skew)
        self._config = evolve(scenario.config, data_loss="fail")
        self._read: Iterator[None] | None = None

    def step(self) -> None:
        """Start a read, or continue the current one."""
        if self._luck.random() < _CHANCE:
            self._read = self._read or self._batches()
            with tuned(in_flight=1):
                if next(self._read, self) is self:
                    self._read = None

    def _batches(self) -> Iterator[None]:
        now, scenario = self._clock.now(), self._scenario
        start = now - int(self._luck.uniform(0.2, 1) * scenario.ttl)
        due = [
            row
            for row in self._world.truth.between(start, now - scenario.confidence)
            if row.is_in_time(scenario.confidence, scenario.skew) and not self._world.is_stray(row)
        ]
        began = self._world.clock.now()
        found: list[tuple[StreamId, RowKey]] = []
        try:
            for batch in self._reader().batches(start, now):
                found += _names(batch)
                if self._luck.random() < _CHANCE:
                    self._world.pass_time(int(self._luck.uniform(0.3, 1.5) * scenario.ttl))
                yield
        except DataLossError as error:
            self._check_expired(error)
            return
        except (DecodeError, QueryRefusedError):
            return  # a column or a field was changed during the read
        self._check_read([row for row in due if self._is_announced(row, began)], found)

    def _reader(self) -> TableReader:
        connection = InProcessConnection(
            self._world.server, self._config, before=self._before, node=self._world.answering
        )
        machine = ReaderClock(self._world, self._scenario.machine)
        return TableReader(cast(Any, connection), "ks.t", config=self._config, clock=machine)

    def _check_read(self, due: list[LogRow], found: list[tuple[StreamId, RowKey]]) -> None:
        if len(set(found)) < len(found):
            raise LawBroken("a bounded read has a row twice")
        if missing := [row for row in due if row.name not in found]:
            raise LawBroken(f"missed by a bounded read that told of no loss: {missing[0]}")

    def _is_announced(self, row: LogRow, began: int) -> bool:
        """Return True if a read started at `began` finds, or waits for, the row's generation."""
        its = self._world.set_of(row.name[0])
        if its.announced is None or not its.is_stored:
            return its.announced is not None and its.announced <= began
        patience = self._scenario.tuning["publication_wait"]
        return its.announced <= max(began, its.start + patience - self._scenario.skew)

    def _check_expired(self, error: DataLossError) -> None:
        if error.end > self._clock.now() - self._scenario.ttl + 10 * SECOND:
            raise LawBroken(f"told before it could expire: {error}")

    def _before(self, _asked: object) -> None:
        self._world.pass_time(int(self._luck.expovariate(20) * SECOND))


def _names(batch: pa.RecordBatch) -> list[tuple[StreamId, RowKey]]:
    return [
        (
            StreamId(row["cdc$stream_id"]),
            RowKey(UUID(row["cdc$time"]).bytes, row["cdc$batch_seq_no"]),
        )
        for row in batch.to_pylist()
    ]
