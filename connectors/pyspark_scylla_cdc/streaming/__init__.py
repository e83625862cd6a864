"""Streaming reads: decides how far each micro-batch reaches, and which late rows it delivers.

May import `executors`, `log_plan` and the packages below. Begin with `stream`, which Spark calls;
`window_end` decides where a micro-batch ends.
"""
