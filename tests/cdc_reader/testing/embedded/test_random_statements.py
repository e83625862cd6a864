"""Tests that random statements of the grammar are executed or rejected without internal errors.

`SCYLLA_CDC_STATEMENTS` sets the number of statements (2,000 if unset), and `SCYLLA_CDC_FUZZ_SEED`
sets the seed. With `pytest -rP`, the output shows the slowest statement and its CPU time. Garbage
collection is disabled during each statement, so that this time excludes the garbage of earlier
statements.
"""

import gc
import os
import random
import time

import pytest

from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.embedded.errors import CqlError
from tests.fuzzing.statements import Statements

COUNT = int(os.environ.get("SCYLLA_CDC_STATEMENTS", "2000"))
SEED = int(os.environ.get("SCYLLA_CDC_FUZZ_SEED", "1"))
RENEWED = 100
"""Number of statements after which the schema is recreated, because some statements drop it."""
SCHEMA = (
    "DROP KEYSPACE IF EXISTS f",
    "CREATE KEYSPACE f WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TYPE f.u (a int, b text)",
    """CREATE TABLE f.t (pk int, ck int, st int static, v text, m map<text, int>, s set<int>,
    l list<int>, u u, n int, d duration, PRIMARY KEY (pk, ck))
    WITH cdc = {'enabled': true, 'preimage': 'full', 'postimage': true}""",
    "CREATE TABLE f.k (pk int PRIMARY KEY, v text, w frozen<u>) WITH cdc = {'enabled': true}",
    "CREATE TABLE f.c (pk int PRIMARY KEY, n counter)",
    """INSERT INTO f.t (pk, ck, st, v, m, s, l, u)
    VALUES (1, 2, 3, 'x', {'a': 1}, {1, 2}, [1, 2], {a: 1, b: 'y'})""",
    "INSERT INTO f.k (pk, v, w) VALUES (1, 'x', (1, 'y'))",
    "UPDATE f.c SET n = n + 1 WHERE pk = 1",
)


@pytest.mark.parametrize("version", [pytest.param("5.2", marks=pytest.mark.slow), "2026.1"])
def test_random_statements_are_answered_or_refused(version: str) -> None:
    """A random statement raises no exception other than CqlError."""
    statements, scylla = Statements(random.Random(SEED)), EmbeddedScylla(version=version)
    slowest, accepted = (0.0, ""), 0
    for number in range(COUNT):
        if number % RENEWED == 0:
            for cql in SCHEMA:
                scylla.execute(cql)
        cql = statements.next()
        gc.disable()
        began = time.thread_time()
        try:
            scylla.execute(cql)
            accepted += 1
        except CqlError:
            pass
        except Exception as bug:
            bug.add_note(f"statement {number} of seed {SEED}: {cql}")
            raise
        finally:
            gc.enable()
        slowest = max(slowest, (time.thread_time() - began, cql))
    print(f"{COUNT} statements, {accepted} accepted; the slowest took {slowest[0] * 1000:.1f} ms "
          f"of CPU: {slowest[1][:500]}")  # fmt: skip
    assert accepted > COUNT // 100, "too few statements were accepted to prove anything"
