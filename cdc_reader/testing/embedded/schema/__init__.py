"""What exists: keyspaces, tables, columns, user-defined types."""
