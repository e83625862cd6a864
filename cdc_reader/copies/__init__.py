"""Copies of tables in table formats, without Spark: how changes are merged, and Delta tables."""
