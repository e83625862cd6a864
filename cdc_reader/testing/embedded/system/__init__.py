"""The server's own keyspaces: their definitions, and their virtual tables.

`system` and `system_schema` are virtual; the others are stored like any table.

May import `topology` and the packages below it. Begin with `definitions`; `virtual` makes rows of
a virtual table.
"""
