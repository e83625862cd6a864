"""The schema: keyspaces, tables, columns, user-defined types.

This package may import `codec` and `grammar`. Begin with `table`; `catalog` contains all tables.
"""
