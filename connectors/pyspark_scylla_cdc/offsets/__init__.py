"""The content of a Spark checkpoint: a position in the log, and the late rows delivered.

Imports no other room. Begin with `offset`.
"""
