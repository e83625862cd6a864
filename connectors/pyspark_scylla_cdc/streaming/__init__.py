"""Streaming: offsets, and how far each micro-batch advances them.

Begin with `stream`, which Spark calls.
"""
