"""Copies of tables in Delta tables, without Spark.

`merging`, `updates` and `delta` also serve `mirror` in Spark. For the copies that `scylla-cdc
mirror` keeps, begin with `keeping` and `table_copy`.
"""
