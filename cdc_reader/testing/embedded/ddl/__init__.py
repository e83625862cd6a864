"""Statements that change the schema, with the server's own refusals.

A statement that changes nothing, because of IF [NOT] EXISTS, returns None.
"""
