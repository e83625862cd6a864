"""Shows the state of running streaming queries: as values, log lines and Prometheus metrics.

This package may import `offsets`. Begin with `listener`, which Spark calls.
"""
