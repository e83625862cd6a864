"""The CDC write path: the log rows of each write to a base table.

`split` turns a mutation into records, `delta` and `image` turn a record into log rows,
`write_path` applies base and log together.
"""
