"""Folds changes into the rows that result from them, and keeps copies of tables that way.

May import no other package of the connector. Begin with `fold`, then `mirror`; `sink` is what a
copy is written to.
"""
