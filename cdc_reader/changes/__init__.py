"""Turns Arrow rows of the log into changes of the base table.

May import `cql` and `decoding`. Begin with `change`, the value that a handler gets. `grouping`
turns rows into changes, and `frames` turns them into Arrow tables.
"""
