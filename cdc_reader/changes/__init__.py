"""Turns Arrow rows of the log into changes of the base table.

May import `cql` and `decoding`, and knows what `reading` delivers. Begin with `records`, which finds the rows of each change. Of
them `grouping` makes a `change`, the value that a handler gets, and `frames` makes Arrow tables.
"""
