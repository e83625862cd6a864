"""The schema: keyspaces, tables, columns, user-defined types.

May import `codec` and `grammar`. Begin with `table`; `catalog` holds all tables.
"""
