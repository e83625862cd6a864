"""Queries that run without Spark detect defects. Each test breaks the source in one way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from cdc_reader._time import FOREVER
from cdc_reader.reading.cursor import KnownGenerations, LateState, RowName
from cdc_reader.reading.late.keys import KeyReader
from cdc_reader.reading.view import PublicationGate
from cdc_reader.streams.shard import MAX_TOKEN, MIN_TOKEN
from cdc_reader.testing import EmbeddedScylla, ManualClock
from pyspark_scylla_cdc.offsets.offset import Offset
from pyspark_scylla_cdc.planning.late import ArrivalFilter
from pyspark_scylla_cdc.planning.promise import Promise
from pyspark_scylla_cdc.planning.streams import Streams
from pyspark_scylla_cdc.streaming.late_rows import DeliveringWatch
from pyspark_scylla_cdc.streaming.snapshot_end import RowsAhead
from tests.connectors.pyspark_scylla_cdc.streaming import (
    test_late,
    test_new_generation,
    test_snapshot,
)
from tests.mutations import Mutation, with_fixtures

if TYPE_CHECKING:
    from cassandra.cluster import Session

pytestmark = pytest.mark.slow

Check = Callable[..., None]

make = test_snapshot.make
late = test_new_generation.late
stream = test_new_generation.stream


def _announcements(cluster: EmbeddedScylla, late: test_new_generation.Make) -> None:
    test_new_generation.check_history(1, cluster, late(lateRows="deliver"))


def _a_half_published_generation(
    cluster: EmbeddedScylla, session: Session, stream: Any, clock: ManualClock
) -> None:
    test_new_generation.test_a_generation_published_half_way_is_waited_for(
        cluster, session, stream, clock
    )


def _a_repeated_micro_batch(late: test_new_generation.Make) -> None:
    test_late.test_micro_batch_done_again(late)


def _twins(cluster: EmbeddedScylla, late: test_new_generation.Make) -> None:
    test_new_generation.test_twins_of_a_late_generation(cluster, late, "ignore")


def _strays(cluster: EmbeddedScylla, late: test_new_generation.Make) -> None:
    test_new_generation.test_strays_of_a_late_generation(cluster, late)


def _snapshots(make: test_snapshot.Make, session: Session, clock: ManualClock) -> None:
    test_snapshot.check_history(24, make, session, clock)


def _rows_that_expire(make: test_snapshot.Make, session: Session, clock: ManualClock) -> None:
    test_snapshot.test_a_loss_that_shows_when_rows_were_read(make, session, clock)


def _without_the_last(self: Streams, first: int, last: int) -> Streams:
    return _PART(self, first, max(first + 1, last - 1))


def _forgotten(
    self: DeliveringWatch, reader: Any, cursor: Any, state: LateState, now: int
) -> tuple[LateState, frozenset[RowName]]:
    return state, _SEARCH(self, reader, cursor, state, now)[1]


def _all(_self: ArrivalFilter, batches: Iterable[pa.RecordBatch], clock: object) -> Any:
    del clock
    return batches


def _one_partition_more(self: RowsAhead, start: int, limit: int) -> int:
    return int(self.tokens[limit]) if len(self.tokens) > limit else _END(self, start, limit)


def _nothing_done(self: Offset) -> int:
    return MIN_TOKEN if self.is_before_snapshot else MAX_TOKEN


def _published_or_not(self: PublicationGate, *_: Any) -> int:
    del self
    return FOREVER


_PART = Streams.part
_SEARCH = DeliveringWatch._search
_END = RowsAhead.end

MUTATIONS: dict[str, tuple[Check, Mutation]] = {
    "plan: the last stream of a run is left out": (
        (_announcements, Mutation(Streams, "part", _without_the_last))
    ),
    "window: goes beyond a generation that is half published": (
        (_a_half_published_generation, Mutation(PublicationGate, "limit", _published_or_not))
    ),
    "generations: one announced late is not read from its start": (
        (_announcements, Mutation(KnownGenerations, "missed", lambda *_: {}))
    ),
    "generations: rows of one announced late are delivered, though another stream had them": (
        (_twins, Mutation(KeyReader, "twins", lambda *_: frozenset()))
    ),
    "generations: strays of one announced late are not looked for": (
        (_strays, Mutation(KnownGenerations, "new", lambda *_: frozenset()))
    ),
    "late rows: a sweep does not record what it found": (
        (_announcements, Mutation(DeliveringWatch, "_search", _forgotten))
    ),
    "late rows: an executor reads those that arrived after the plan": (
        (_a_repeated_micro_batch, Mutation(ArrivalFilter, "rows", _all))
    ),
    "losses: not judged after reading": (
        (_rows_that_expire, Mutation(Promise, "check", lambda *_: None))
    ),
    "snapshot: a micro-batch has a partition more than allowed": (
        (_snapshots, Mutation(RowsAhead, "end", _one_partition_more))
    ),
    "snapshot: a restart begins it again": (
        (_snapshots, Mutation(Offset, "done", property(_nothing_done)))
    ),
}
"""The check that detects the defect, and the defect."""


@pytest.mark.parametrize("check", dict.fromkeys(check for check, _ in MUTATIONS.values()))
def test_the_checks_pass(check: Check, request: pytest.FixtureRequest) -> None:
    """Without a defect, each of the checks passes."""
    with_fixtures(check, request)()


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_the_queries_find_what_is_broken(
    mutation: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check fails with the defect."""
    check, broken = MUTATIONS[mutation]
    broken.check_found(with_fixtures(check, request), monkeypatch)
