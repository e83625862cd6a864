"""A Spark process's access to the cluster: keeps sessions, plans windows, reads partitions.

May import `planning` and the packages below. Begin with `log_plan` on the driver, with `partitions`
on an executor.
"""
