"""Folds changes into the rows that result from them.

Begin with `fold`.
"""
