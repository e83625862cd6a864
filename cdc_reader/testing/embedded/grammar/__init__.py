"""Parses CQL text to syntax trees, without knowledge of the schema."""
