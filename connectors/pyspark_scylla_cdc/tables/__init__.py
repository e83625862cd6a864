"""Folds changes into the resulting rows, and maintains copies of tables in this way.

This package may import no other package of the connector. Begin with `fold`, then `mirror`. A copy
is written to a `sink`.
"""
