"""Shows the state of running streaming queries: as values, as a log line, in Prometheus.

May import `offsets` and `reports`. Begin with `listener`, which Spark calls.
"""
