"""Parses CQL text into syntax trees, without knowledge of the schema.

This package may import no other package of the server. Begin with `parser`; `ast` defines the
trees.
"""
