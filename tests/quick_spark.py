"""Settings with which Spark starts and runs small queries quickly."""

from __future__ import annotations

START_FAST = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""JVM options for a run of a minute: optimizing code would cost more than it saves."""

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
"""Settings with which Spark interprets expressions, and notes no line of Python for each of them.

Queries over a few rows spend most of their time on generating and compiling code. The tests of the
documentation and the examples keep Spark's default.
"""
