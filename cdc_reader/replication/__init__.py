"""Applies the changes of one table to another table, which becomes a copy.

This package may import `changes`, `cluster` and the packages below them. Begin with `replicator`.
`writes` creates the statements, and `table_comparison` compares two tables.
"""
