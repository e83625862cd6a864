"""Streaming reads: decides how far each micro-batch reaches, and which late rows it delivers.

This package may import `executors`, `log_plan` and the packages below them in the diagram on the
design page. Begin with `stream`, which Spark calls. `micro_batch` decides what a micro-batch
contains.
"""
