"""A query that follows the table `ks.t` without Spark, with a clock that the test advances."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

from attrs import define, field
from cassandra.cluster import Session

from cdc_reader.cql import timeuuid
from cdc_reader.testing import EmbeddedScylla, ManualClock
from cdc_reader.testing.embedded.topology.generation import Generation
from pyspark_scylla_cdc.spark_versions import ReadMaxFiles
from pyspark_scylla_cdc.streaming.stream import StreamReader

SECOND = 1_000_000
LIMIT = ReadMaxFiles(1)


def create_table(session: Session, *, tablets: str) -> None:
    """Create the table `ks.t`, with postimages; `tablets` is the option of its keyspace."""
    session.execute(
        "CREATE KEYSPACE ks WITH replication = "
        f"{{'class': 'NetworkTopologyStrategy', 'datacenter1': 1}} AND tablets = {tablets}"
    )
    session.execute(
        "CREATE TABLE ks.t (pk int PRIMARY KEY, v int) "
        "WITH cdc = {'enabled': true, 'postimage': true}"
    )


@define
class FollowedLog:
    """Uses a reader as Spark does: passes offsets as JSON, runs micro-batches, and restarts."""

    make: Callable[[], StreamReader]
    clock: ManualClock
    session: Session
    offsets: list[str] = field(factory=list)
    batches: list[list[int]] = field(factory=list)
    reader: StreamReader = field(init=False)

    def start(self) -> None:
        """Start, or restart from the last offset."""
        self.reader = self.make()
        if not self.offsets:
            self.offsets.append(json.dumps(self.reader.initialOffset()))
            start = json.loads(self.offsets[0])
            self.reader.partitions(start, start)

    def write(self, pk: int, age: int = 0) -> None:
        """Write a row whose timestamp is `age` seconds in the past."""
        at = self.clock.now() - age * SECOND
        self.session.execute("INSERT INTO ks.t (pk, v) VALUES (%s, 0) USING TIMESTAMP %s", (pk, at))

    def step(self, *, commit: bool = True) -> list[int]:
        """Run the next micro-batch, if any, and return its keys. If `commit`, store its offset."""
        latest = json.dumps(self.reader.latestOffset(json.loads(self.offsets[-1]), LIMIT))
        if latest == self.offsets[-1]:
            return []
        found = self.read(self.offsets[-1], latest)
        if commit:
            self.offsets.append(latest)
            self.batches.append(found)
        return found

    def step_twice(self, draw: random.Random) -> None:
        """Run the next micro-batch, if any, and again later; assert that the rows are the same."""
        start, found = self.offsets[-1], self.step()
        if start != self.offsets[-1]:
            self.clock.advance(draw.randrange(20 * SECOND))
            assert self.read(start, self.offsets[-1]) == found

    def read(self, start: str, end: str) -> list[int]:
        """Return the keys of the rows between two offsets."""
        parts = self.reader.partitions(json.loads(start), json.loads(end))
        batches = [batch for part in parts for batch in self.reader.read(part)]
        return sorted(row["pk"] for batch in batches for row in batch.to_pylist())

    def run(self, seconds: int) -> list[int]:
        """Poll once a second, and return the keys of all micro-batches."""
        found: list[int] = []
        for _ in range(seconds):
            self.clock.advance(SECOND)
            found += self.step()
        return sorted(found)

    def astray(
        self, server: EmbeddedScylla, pk: int, *, by: int, twice: bool = False, age: int = 0
    ) -> None:
        """Write a row to a stream `by` generations later and, if `twice`, to its own stream too."""
        server.misplacing.by, server.misplacing.twice = by, twice
        self.write(pk, age)
        server.misplacing.by = 0

    def around_switch(self, server: EmbeddedScylla, *, twice: bool) -> list[int]:
        """Write rows around a change of generation, half of them as strays. Return all keys."""
        server.cluster.ring_delay_ms = 5_000
        server.join(vnodes=3)
        switch = server.cluster.generations[-1].start_us
        self.clock.advance(switch - 2 * SECOND - self.clock.now())
        for pk in range(40):
            if pk % 2:
                by = 1 if self.clock.now() < switch else -1
                self.astray(server, pk, by=by, twice=twice)
            else:
                self.write(pk)
            self.clock.advance(SECOND // 10)
        return list(range(40))

    def switch(self, server: EmbeddedScylla) -> tuple[Generation, Generation]:
        """Create a generation that begins now, and return the previous one and the new one."""
        server.join(vnodes=3)
        before, after = server.cluster.generations[-2:]
        return before, after

    def log_change(self, stream: bytes, pk: int, at: int) -> None:
        """Insert the log rows of a change (a delta and a postimage) in this stream now."""
        for number, operation in enumerate((2, 9)):
            self.session.execute(
                'INSERT INTO ks.t_scylla_cdc_log ("cdc$stream_id", "cdc$time", '
                '"cdc$batch_seq_no", "cdc$operation", pk, v) VALUES (%s, %s, %s, %s, %s, 0) '
                "USING TTL 86400",
                (stream, timeuuid.make(at, bytes(8)), number, operation, pk),
            )

    @property
    def delivered(self) -> list[int]:
        """The keys of all committed micro-batches."""
        return sorted(pk for batch in self.batches for pk in batch)
