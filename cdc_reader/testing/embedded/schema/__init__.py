"""The schema: keyspaces, tables, columns, user-defined types."""
