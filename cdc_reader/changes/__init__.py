"""Turns Arrow rows of the log into changes of the base table.

This package may import `decoding`, `reading` and the packages below them, but not `cluster`. Begin
with `records`, which finds the rows of each change. `grouping` turns these rows into `Change`
objects, which handlers receive; `frames` turns the rows into Arrow batches.
"""
