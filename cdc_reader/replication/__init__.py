"""Applies changes to another table, to make it a copy of the first.

May import `changes` and `cluster`. Begin with `replicator`.
"""
