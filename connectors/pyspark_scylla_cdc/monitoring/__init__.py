"""What is seen of streaming queries while they run: values, a log line, Prometheus.

May import `offsets` and `reports`. Begin with `listener`, which Spark calls.
"""
