"""Turns Arrow rows of the log into changes of the base table.

May import `decoding`, `reading` and the packages below, but not `cluster`. Begin with `records`,
which finds the rows of each change. `grouping` turns these rows into a `change`, the value that a
handler receives; `frames` turns them into Arrow tables.
"""
