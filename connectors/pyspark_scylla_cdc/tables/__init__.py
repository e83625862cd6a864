"""Folds changes into the resulting rows, and maintains copies of tables in this way.

No other package of the connector may import this one. Begin with `fold`, then `mirror`. A copy is
written to a `sink`.
"""
