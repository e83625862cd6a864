"""Shows how running streaming queries do: as values, as a log line, in Prometheus.

May import `offsets` and `reports`. Begin with `listener`, which Spark calls.
"""
