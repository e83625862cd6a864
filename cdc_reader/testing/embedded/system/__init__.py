"""System keyspaces: their definitions and virtual tables.

The tables of `system`, `system_schema` and `system_traces` are virtual; the tables of other
keyspaces are stored like any table.

This package may import `topology` and the packages below it. Begin with `definitions`; `virtual`
creates the rows of virtual tables.
"""
