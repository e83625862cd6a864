"""Folds changes into the resulting rows, and maintains copies of tables in this way.

May import no other package of the connector. Begin with `fold`, then `mirror`; a copy is written to
a `sink`.
"""
