"""Converts CQL literals and JSON to bytes, and bytes to sortable keys.

May import `grammar`. Begin with `constant`, which serializes CQL constants.
"""
