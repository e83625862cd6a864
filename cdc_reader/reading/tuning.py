"""What readers decide themselves, so that no setting is needed. Times are in µs.

Read these values as attributes of the module: tests replace them.
"""

from __future__ import annotations

STREAMS_PER_QUERY = 64
"""A server may allow fewer; a connection learns that from the first query that is rejected."""
FIRST_IN_FLIGHT, MOST_IN_FLIGHT = 8, 32
HELD_BYTES = 16 * 1024 * 1024
"""The size of the pages that a reader has requested; see `InFlight`."""
LONGEST_WINDOW = 86_400_000_000
SORTED_BYTES = 32 * 1024 * 1024
"""The size of a window whose rows are sorted by write time; larger windows are divided."""
SETTLE_INTERVAL = 5_000_000
"""How often an eager reader moves its position, and a reader checks for an awaited generation."""
LATE_INTERVAL = 60_000_000
"""The time between two searches for late rows."""
REPORT_QUERIES, REPORT_ROWS = 64, 1_000_000
"""The most queries and rows of a search for late rows that are only counted."""
PUBLICATION_WAIT = 600_000_000
"""How long a reader waits for a generation that has streams but is not announced yet."""
