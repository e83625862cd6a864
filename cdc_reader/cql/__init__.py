"""CQL as values: types, names, schemas, time UUIDs, and keys and values written as JSON.

May import `_time` and the modules below. Begin with `types` and `schema`.
"""
