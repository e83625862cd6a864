"""The tables of `system_traces`: the traces that clients requested."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterator, Mapping

from attrs import define, field, frozen

from cdc_reader.testing.embedded.system.virtual import PartitionKey, Values, VirtualTable

_KEPT = 1000


@frozen
class Trace:
    """One traced request: its client, its node, its start (µs) and its duration (µs)."""

    id: uuid.UUID
    client: str
    coordinator: str
    command: str
    text: str
    username: str
    started_us: int
    duration_us: int


@define
class Traces:
    """The latest traces of a cluster; each contains the events of one node."""

    _kept: deque[Trace] = field(factory=lambda: deque(maxlen=_KEPT))

    def add(self, trace: Trace) -> None:
        """Add a trace, and discard the oldest one if there are too many."""
        self._kept.append(trace)

    def sources(self) -> Mapping[tuple[str, str], VirtualTable]:
        """Return the sources by (keyspace, table)."""
        return {
            ("system_traces", "events"): VirtualTable(self._events),
            ("system_traces", "sessions"): VirtualTable(self._sessions),
        }

    def _found(self, key: PartitionKey | None) -> Iterator[Trace]:
        yield from (trace for trace in self._kept if key is None or key[0] == trace.id.bytes)

    def _sessions(self, key: PartitionKey | None) -> Iterator[Values]:
        for trace in self._found(key):
            yield {
                "session_id": trace.id,
                "client": trace.client,
                "command": trace.command,
                "coordinator": trace.coordinator,
                "duration": trace.duration_us,
                "parameters": {"query": trace.text},
                "request": f"Execute CQL3 query: {trace.text}",
                "request_size": len(trace.text),
                "response_size": 0,
                "started_at": trace.started_us // 1000,
                "username": trace.username,
            }

    def _events(self, key: PartitionKey | None) -> Iterator[Values]:
        steps = ("Parsing a statement", "Processing a statement", "Done processing")
        for trace in self._found(key):
            for number, activity in enumerate(steps):
                elapsed = trace.duration_us * number // (len(steps) - 1)
                yield {
                    "session_id": trace.id,
                    "event_id": uuid.uuid1(clock_seq=number),
                    "activity": activity,
                    "scylla_parent_id": 0,
                    "scylla_span_id": 1,
                    "source": trace.coordinator,
                    "source_elapsed": elapsed,
                    "thread": "shard 0",
                }
