"""Parses CQL text to syntax trees, without knowledge of the schema.

May import no other package of the server. Start with `parser`; `ast` defines the trees.
"""
