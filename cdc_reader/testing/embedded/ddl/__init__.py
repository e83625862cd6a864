"""Schema statements, with ScyllaDB's error messages.

A statement that changes nothing, because of IF [NOT] EXISTS, returns None. This package may import
`grammar`, `schema`, `cdc` and `storage`. Begin with `tables`.
"""
