"""CQL in Python: types, names, schemas, statements, time UUIDs, values, and keys written as JSON.

This package may import `_time` and the modules below it. Begin with `types` and `schema`.
"""
