"""The schema: keyspaces, tables, columns, user-defined types.

May import `codec` and `grammar`. Start with `table`; `catalog` holds all tables.
"""
