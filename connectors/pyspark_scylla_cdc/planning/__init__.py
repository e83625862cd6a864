"""A window of the log as Spark partitions: arithmetic, without queries.

May import `options` and `offsets`. Begin with `plan`; `partition` is what an executor is sent.
"""
