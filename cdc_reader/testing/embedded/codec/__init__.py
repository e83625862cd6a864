"""Converts CQL literals and JSON to bytes, and bytes to sortable keys.

This package may import `grammar`. Begin with `constant`, which serializes CQL constants.
"""
