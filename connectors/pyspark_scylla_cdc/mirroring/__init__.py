"""Keeps copies of tables current with streaming queries. Begin with `mirror`.

This package may import `tables`, which folds and merges changes, and `monitoring`.
"""
