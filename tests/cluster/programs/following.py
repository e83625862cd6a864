"""A streaming query on the cluster, which the test watches.

Arguments: SETTINGS_JSON FOLDER OPTIONS_JSON. The counterpart on one machine is
`following_query.py`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.connectors.pyspark_scylla_cdc.support.following_query import Narrator, follow

if __name__ == "__main__":
    settings, folder, options = sys.argv[1:]
    spark = SparkSession.builder.config(map=json.loads(settings)).getOrCreate()
    spark.streams.addListener(Narrator(spark))
    while True:
        follow(spark, Path(folder), json.loads(options))
