"""What a checkpoint of Spark's holds: a position in the log, and the late rows delivered.

Imports no other room. Begin with `offset`.
"""
