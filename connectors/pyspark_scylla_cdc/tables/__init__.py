"""Folds changes into the resulting rows, and merges them into copies of tables.

Begin with `fold`, then `update`, which merges a micro-batch into a `sink`.
"""
