"""Folds changes into the resulting rows, and uses this to maintain copies of tables.

May import no other package of the connector. Begin with `fold`, then `mirror`; a copy is written to
a `sink`.
"""
