"""Streaming reads: decides how far each micro-batch reaches, and which late rows it delivers.

It may import `executors`, `log_plan` and the packages below them. Begin with `stream`, which Spark
calls. `window_end` decides where a micro-batch ends.
"""
