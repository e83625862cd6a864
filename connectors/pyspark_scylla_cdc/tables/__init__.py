"""Folds changes into the resulting rows, and maintains copies of tables in this way.

It may import no other package of the connector. Begin with `fold`, then `mirror`. A copy is written
to a `sink`.
"""
