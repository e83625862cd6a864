"""Whether Spark finds the data source, on the driver and on every executor.

Begin with `doctor`, the command, or with `session`, which avoids the faults that it finds.
"""
