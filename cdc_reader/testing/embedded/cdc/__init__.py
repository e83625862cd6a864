"""The CDC write path: the log rows of each write to a base table.

This package may import `schema`, `storage` and `codec`. Begin with `write_path`, which writes a
base table and its log together. `split` turns a mutation into records; `delta` and `image` turn a
record into rows.
"""
