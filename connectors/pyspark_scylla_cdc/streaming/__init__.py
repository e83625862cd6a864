"""Streaming: how far each micro-batch advances the offset, and which late rows it delivers.

May import `reading` and the packages below. Begin with `stream`, which Spark calls.
"""
