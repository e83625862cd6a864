"""Applies changes to another table, to make it a copy of the first.

May import `changes`, `cluster` and the packages below. Begin with `replicator`; `writes` makes the
statements, and `table_comparison` compares two tables.
"""
