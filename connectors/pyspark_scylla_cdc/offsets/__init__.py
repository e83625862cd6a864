"""The contents of a Spark checkpoint: a position in the log, and the late rows delivered.

This package may import no other package of the connector. Begin with `offset`.
"""
