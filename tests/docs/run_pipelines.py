"""Runs a pipeline in a separate Spark, and prints the result as JSON.

Arguments: FOLDER SPEC.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from pyspark.pipelines import cli

from pyspark_scylla_cdc.local_session import local_session

SERVER = "org.apache.spark.sql.connect.service.SparkConnectService$"


def run(spec: str, remote: str) -> str:
    """Run Spark's pipeline command, and return its output."""
    command = [sys.executable, cli.__file__, "run", "--spec", spec]
    env = {**os.environ, "SPARK_REMOTE": remote}
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return ran.stdout + ran.stderr


def main(folder: Path, spec: str) -> None:
    """Run the pipeline. Print its output, and the rows of the table `orders` if it exists."""
    spark = local_session(
        "pipelines",
        folder / "spark.log",
        **{
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.port": "0",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        },
    )
    port = getattr(getattr(spark._jvm, SERVER), "MODULE$").localPort()
    said = run(spec, f"sc://localhost:{port}")
    made = spark.catalog.tableExists("orders")
    orders = [row.asDict() for row in spark.table("orders").collect()] if made else []
    print(json.dumps({"said": said, "orders": orders}))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
