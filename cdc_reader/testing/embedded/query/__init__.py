"""Statements at work: prepared, bound, executed over schema and storage.

The face of this room is `engine.Engine`.
"""
