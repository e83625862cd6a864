"""CQL as values: types, names, schemas, time UUIDs, and keys and values written as JSON.

Imports only the root modules of `cdc_reader`. Begin with `types` and `schema`.
"""
