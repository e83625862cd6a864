"""The options of the data source: their table, how each is parsed, and errors that name them.

Begin with `table`.
"""
