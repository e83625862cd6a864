"""Schema statements, with ScyllaDB's error messages.

Executing a statement returns None if IF [NOT] EXISTS makes it a no-op. This package may import
`grammar`, `schema`, `cdc` and `storage`. Begin with `tables`.
"""
