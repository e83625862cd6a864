"""Streaming reads: decide how far micro-batches reach, and which late rows they deliver.

May import `executors`, `log_plan` and the packages below. Begin with `stream`, which Spark calls;
`window_end` decides where a micro-batch ends.
"""
