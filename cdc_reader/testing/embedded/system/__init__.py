"""The server's own keyspaces: what they define, and the tables made up when they are read.

`system` and `system_schema` are virtual; the others are stored like any table.
"""
