"""Statements, prepared, bound and executed over schema and storage.

Begin with `engine.Engine`.
"""
