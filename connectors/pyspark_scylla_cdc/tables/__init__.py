"""Folds changes into the rows that result from them, and keeps copies of tables by that.

Begin with `fold`, then `mirror`; a `Sink` is what a copy is written to.
"""
