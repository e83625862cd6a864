"""The CDC write path: what each write to a base table puts into its log.

`split` turns a mutation into records, `delta` and `image` turn a record into log rows,
`write_path` applies base and log together.
"""
