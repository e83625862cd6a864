"""Statements that change the schema, with the server's own refusals.

A statement that changes nothing, because of IF [NOT] EXISTS, returns None. May import `grammar`,
`schema`, `cdc` and `storage`. Begin with `tables`.
"""
