"""Folds changes into the rows that they lead to.

Begin with `fold`.
"""
