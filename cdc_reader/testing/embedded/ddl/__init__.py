"""Schema statements, with ScyllaDB's error messages.

A statement that changes nothing, because of IF [NOT] EXISTS, returns None. May import `grammar`,
`schema`, `cdc` and `storage`. Begin with `tables`.
"""
